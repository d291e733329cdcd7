use std::collections::BTreeSet;

use crate::connection::Connection;
use crate::error::Failure;

/// How many keys the server looks at for one step: a millisecond or so.
const STEP: u32 = 1_000;

/// The keys of one type that match a pattern, each once; names that are not UTF-8 are none of ours.
pub(crate) async fn scan(connection: &Connection, pattern: &str, kind: &str) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    let mut cursor = 0_u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP).arg("TYPE").arg(kind);
        let (next, keys): (u64, Vec<Vec<u8>>) = connection.command(&command).await?;
        found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
        if next == 0 {
            return Ok(found);
        }
        cursor = next;
    }
}
