//! Names: each is a lock of its own.

use lock_core::{ErrorKind, Grant, LockKey, Release, Result};

use super::Fixture;
use super::ground::{assert_free, assert_held, hold, nonce};

/// All of them held at once, then every other one given back: no name may stand for another.
pub(super) async fn names_are_distinct_locks(fixture: &dyn Fixture) -> Result<()> {
    let client = fixture.connect().await;
    let mut grants: Vec<Grant> = Vec::new();
    for name in names(&nonce()) {
        let key = LockKey::new(&name)?;
        match hold(fixture, &*client, &key).await {
            Ok(grant) => grants.push(grant),
            // A foreign wire format may have no room for a name with unbalanced braces; then it says so.
            Err(error) if error.kind() == ErrorKind::InvalidInput && is_unbalanced(&name) => {}
            Err(error) => return Err(error),
        }
    }
    for grant in grants.iter().step_by(2) {
        assert_eq!(client.release(grant).await?, Release::Released);
    }
    for (place, grant) in grants.iter().enumerate() {
        if place % 2 == 0 {
            assert_free(fixture, &*client, &grant.claim.key).await?;
        } else {
            assert_held(fixture, &*client, &grant.claim.key).await?;
        }
    }
    for grant in grants.iter().skip(1).step_by(2) {
        assert_eq!(client.release(grant).await?, Release::Released);
    }
    Ok(())
}

/// The same text in every position that has ever meant something to a store: paths, hash tags, patterns, escapes, suffixes.
fn names(root: &str) -> Vec<String> {
    let short = &root[..8];
    let mut names: Vec<_> = [
        "_",
        "_/b",
        "_b",
        "/_",
        "_/",
        "_//b",
        "_/.",
        "_/..",
        "{_}",
        "_}",
        "{_",
        "{}_",
        "{_}b",
        "{{_}}",
        "}_{",
        "_{b}",
        " _",
        "_ ",
        "_ _",
        "_🔒",
        "_é",
        "_e\u{301}",
        "_*",
        "_?",
        "[_]",
        "_\\",
        "_%2Fb",
        "_%",
        "'_'",
        "\"_\"",
        "_:fence",
        "_:token",
        "_:claims",
        "_:queue",
        "_:owner",
        "_:lock",
        "_:waiters",
        "{_}:fence",
        "{_}:claims",
        "hasp:_",
        "hasp:{_}",
        "hasp:_:fence",
        "redisson_lock__channel:{_}",
    ]
    .iter()
    .map(|name| name.replace('_', root))
    .collect();
    names.push(root.replace(short, &short.to_uppercase()) + "A");
    names.push(root.replace(short, &short.to_uppercase()) + "a");
    names.push(format!("{root:x<511}1"));
    names.push(format!("{root:x<511}2"));
    names.push("🔒".repeat(120) + root);
    names
}

fn is_unbalanced(name: &str) -> bool {
    let mut depth = 0;
    for char in name.chars() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return true;
        }
    }
    depth != 0 || name.contains("{}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_names_are_keys_and_differ() {
        let names: Vec<_> = names(&nonce()).iter().map(|name| LockKey::new(name).unwrap()).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().any(|name| name.as_str().len() == LockKey::MAX_BYTES));
    }
}
