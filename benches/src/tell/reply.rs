//! What a store answers, in words that fit a line.

use bytes::{Buf, Bytes};

use super::short;
use crate::Store;

/// A store's reply to the command of this name.
pub(super) fn words(store: Store, key: &str, command: &str, says: &Bytes) -> String {
    let told = match store {
        Store::Process | Store::Redis | Store::Nodes => Some(redis(key, says)),
        Store::Etcd => etcd(command, says),
        Store::ZooKeeper => zookeeper(command, says.clone()),
    };
    told.unwrap_or_else(|| format!("{} bytes", says.len()))
}

/// A reply in RESP.
fn redis(key: &str, says: &Bytes) -> String {
    let Ok(text) = std::str::from_utf8(says) else { return format!("{} bytes", says.len()) };
    let mut lines = text.split("\r\n");
    let Some(first) = lines.next() else { return String::new() };
    let rest: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with(['$', '*', '%'])).collect();
    match first.split_at_checked(1) {
        Some(("+" | ":" | "#" | ",", value)) => short(key, value.as_bytes()).unwrap_or_default(),
        Some(("-", error)) => format!("error: {error}"),
        Some(("_", _) | ("$" | "*", "-1")) => "nil".into(),
        Some(("$", _)) => rest.first().and_then(|value| short(key, value.as_bytes())).unwrap_or_default(),
        Some(("*" | "%" | "~", _)) => {
            let values: Vec<_> = rest
                .iter()
                .filter_map(|value| short(key, value.trim_start_matches([':', '+', '#']).as_bytes()))
                .collect();
            format!("[{}]", values.join(", "))
        }
        _ => format!("{} bytes", says.len()),
    }
}

/// A reply of etcd's (`rpc.proto` of etcd 3.4), as far as a lock looks at it.
fn etcd(command: &str, says: &[u8]) -> Option<String> {
    let number = |message: &[u8], wanted| {
        fields(message)?.into_iter().find_map(|(field, value)| match value {
            Value::Number(number) if field == wanted => Some(number),
            _ => None,
        })
    };
    let fields = fields(says)?;
    let header = fields.iter().find_map(|(field, value)| match value {
        Value::Bytes(header) if *field == 1 => Some(*header),
        _ => None,
    })?;
    let at = number(header, 3).map_or_else(String::new, |revision| format!(", at revision {revision}"));
    Some(match command {
        "Txn" if number(says, 2) == Some(1) => format!("the conditions hold{at}"),
        "Txn" => format!("the conditions do not hold{at}"),
        "Range" => format!("{} keys{at}", number(says, 4).unwrap_or(0)),
        // Zero is left out of a message, and means that there is no such lease.
        "LeaseGrant" | "LeaseKeepAlive" => format!("a ttl of {} s", number(says, 3).unwrap_or(0)),
        _ => format!("done{at}"),
    })
}

/// A value of a field in protobuf.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message by their numbers; none if it is not one.
fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                Value::Bytes(message.split_off(..length)?)
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *message.split_off_first()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// A reply of ZooKeeper's (`zookeeper.jute`): the request's number, the transaction, an error, and what was asked for.
fn zookeeper(command: &str, mut says: Bytes) -> Option<String> {
    says.try_get_i32().ok()?;
    says.try_get_i64().ok()?;
    let error = match says.try_get_i32().ok()? {
        0 => None,
        -101 => Some("NoNode"),
        -102 => Some("NoAuth"),
        -103 => Some("BadVersion"),
        -110 => Some("NodeExists"),
        -111 => Some("NotEmpty"),
        -112 => Some("SessionExpired"),
        -118 => Some("SessionMoved"),
        other => return Some(format!("error {other}")),
    };
    if let Some(error) = error {
        return Some(format!("error: {error}"));
    }
    Some(match command {
        "create" | "create2" | "createContainer" => text(&mut says)?,
        "getChildren" | "getChildren2" => {
            let count = says.try_get_i32().ok()?;
            let mut children = (0..count).map(|_| text(&mut says)).collect::<Option<Vec<_>>>()?;
            children.sort();
            format!("[{}]", children.join(", "))
        }
        "exists" | "getData" => "it is there".to_owned(),
        _ => "done".to_owned(),
    })
}

/// A string of ZooKeeper's, of which the end tells most: there the sequence stands.
fn text(says: &mut Bytes) -> Option<String> {
    const WIDTH: usize = 12;

    let length = usize::try_from(says.try_get_i32().ok()?).ok().filter(|length| *length <= says.len())?;
    let text = String::from_utf8(says.split_to(length).to_vec()).ok()?;
    let cut = text.char_indices().nth_back(WIDTH - 1).map_or(0, |(at, _)| at);
    Some(if cut == 0 { text } else { format!("..{}", &text[cut..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_etcd_are_told_as_what_they_decide() {
        // A header with revision 5; then the answer, and for a range how many there are.
        for (command, says, told) in [
            ("Txn", &[10, 2, 24, 5, 16, 1][..], "the conditions hold, at revision 5"),
            ("Txn", &[10, 2, 24, 5], "the conditions do not hold, at revision 5"),
            ("Range", &[10, 2, 24, 5, 32, 2], "2 keys, at revision 5"),
            ("LeaseKeepAlive", &[10, 2, 24, 5, 16, 9], "a ttl of 0 s"),
            ("LeaseRevoke", &[10, 2, 24, 5], "done, at revision 5"),
            ("Txn", &[255], "1 bytes"),
        ] {
            assert_eq!(words(Store::Etcd, "k", command, &Bytes::from_static(says)), told, "{says:?}");
        }
    }

    #[test]
    fn replies_of_zookeeper_are_told_as_names_and_errors() {
        let reply = |error: i32, rest: &[u8]| [&[0; 12][..], &error.to_be_bytes(), rest].concat();
        let string = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
        for (command, says, told) in [
            ("create2", reply(0, &string("/hasp/a/_c_1-lock-0000000007")), "..k-0000000007"),
            ("create2", reply(-101, &[]), "error: NoNode"),
            ("getChildren", reply(0, &[&[0, 0, 0, 2][..], &string("b"), &string("a")].concat()), "[a, b]"),
            ("delete", reply(0, &[]), "done"),
            ("delete", reply(-4, &[]), "error -4"),
            ("getChildren", reply(0, &[0, 0, 0, 9]), "20 bytes"),
        ] {
            assert_eq!(words(Store::ZooKeeper, "k", command, &says.into()), told, "{command}");
        }
    }

    #[test]
    fn replies_of_redis_are_told_as_their_values() {
        for (says, told) in [
            ("+OK\r\n", "OK"),
            (":1\r\n", "1"),
            ("$-1\r\n", "nil"),
            ("_\r\n", "nil"),
            ("$3\r\nabc\r\n", "abc"),
            ("*2\r\n:1\r\n$2\r\nhi\r\n", "[1, hi]"),
            ("-OOM no\r\n", "error: OOM no"),
        ] {
            assert_eq!(redis("k", &Bytes::from_static(says.as_bytes())), told, "{says:?}");
        }
    }
}
