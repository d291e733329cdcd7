use std::collections::BTreeSet;

use crate::address::Address;
use crate::connection::Connection;
use crate::error::Failure;

/// How many keys the server looks at for one step: a millisecond or so.
const STEP: u32 = 1_000;

/// The keys of one type that match a pattern, each once; names that are not UTF-8 are none of ours.
pub(crate) async fn scan(connection: &Connection, pattern: &str, kind: &str) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    match connection.cluster() {
        None => scan_one(connection, None, pattern, kind, &mut found).await?,
        Some(cluster) => {
            for master in cluster.masters().await? {
                scan_one(connection, Some(&master), pattern, kind, &mut found).await?;
            }
        }
    }
    Ok(found)
}

async fn scan_one(
    connection: &Connection,
    master: Option<&Address>,
    pattern: &str,
    kind: &str,
    found: &mut BTreeSet<String>,
) -> Result<(), Failure> {
    let mut cursor = 0_u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP).arg("TYPE").arg(kind);
        let (next, keys): (u64, Vec<Vec<u8>>) = match (connection.cluster(), master) {
            (Some(cluster), Some(master)) => cluster.send_to(master, &command).await?,
            _ => connection.command(&command).await?,
        };
        found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
