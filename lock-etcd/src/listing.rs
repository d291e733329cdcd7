//! Looking at locks, and taking one away.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{GetOptions, GetResponse, SortOrder, SortTarget};
use lock_core::{Effect, Error, ErrorKind, FencingToken, Inspection, LockKey, Release, Result};

use crate::Etcd;
use crate::error::{Failure, NAME, explain};
use crate::keys;
use crate::queue::delete;

/// How many keys are read at once.
const PAGE: i64 = 1_000;

impl Etcd {
    pub(crate) async fn look_at(&self, key: &LockKey) -> Result<Inspection> {
        let queue = self.layout.queue(key, "inspect")?;
        let explained = |failure| explain(failure, "inspect").with_key(key);
        let queued = self.first(&queue).await.map_err(explained)?;
        let mut inspection = Inspection::default();
        inspection.waiters = Some(u64::try_from(queued.count() - 1).unwrap_or(0));
        let Some(first) = queued.kvs().first() else { return Ok(inspection) };
        inspection.held = true;
        inspection.holder = Some(String::from_utf8_lossy(&first.key()[queue.len()..]).into_owned());
        inspection.label = keys::label(first.value());
        inspection.fencing_token = u64::try_from(first.create_revision()).ok().map(FencingToken::new);
        if first.lease() != 0 {
            let (remaining, _) = self.endpoints.time_to_live(first.lease()).await.map_err(explained)?;
            inspection.remaining = u64::try_from(remaining).ok().map(Duration::from_secs);
        }
        Ok(inspection)
    }

    pub(crate) async fn list_all(&self, prefix: &str) -> Result<Vec<LockKey>> {
        if !self.layout.is_own() {
            let says = "without a prefix, locks cannot be told from other keys; set one in `Config`";
            return Err(Error::new(ErrorKind::Unsupported, Effect::None, NAME, "list", says));
        }
        let mut found = BTreeSet::new();
        let beginning = self.layout.beginning_with(prefix);
        let end = end_of(&beginning);
        let mut from = beginning.into_bytes();
        loop {
            let options = GetOptions::new().with_range(&*end).with_keys_only().with_limit(PAGE);
            let page = self.endpoints.get(&from, options).await.map_err(|failure| explain(failure, "list"))?;
            found.extend(page.kvs().iter().filter_map(|kv| self.layout.lock_of(kv.key())));
            match page.kvs().last() {
                // The least key that is greater.
                Some(last) if page.more() => from = [last.key(), &[0]].concat(),
                _ => break,
            }
        }
        // A raw name may have the prefix in its last part, which is no name.
        Ok(found.into_iter().filter(|key| key.as_str().starts_with(prefix)).collect())
    }

    pub(crate) async fn force(&self, key: &LockKey) -> Result<Release> {
        let queue = self.layout.queue(key, "force_release")?;
        self.take_away(&queue).await.map_err(|failure| explain(failure, "force_release").with_key(key))
    }

    async fn take_away(&self, queue: &str) -> Result<Release, Failure> {
        loop {
            let queued = self.first(queue).await?;
            let Some(first) = queued.kvs().first() else { return Ok(Release::NotHeld) };
            // If the holder has changed meanwhile, it is the new one's turn.
            if delete(&self.endpoints, first.key(), first.create_revision()).await? {
                return Ok(Release::Released);
            }
        }
    }

    /// The holder's key, and how many there are in the queue.
    pub(crate) async fn first(&self, queue: &str) -> Result<GetResponse, Failure> {
        let options = GetOptions::new().with_prefix().with_limit(1);
        self.endpoints.get(queue.as_bytes(), options.with_sort(SortTarget::Create, SortOrder::Ascend)).await
    }
}

/// The least key that is greater than all that begin with `beginning`; it is not empty.
fn end_of(beginning: &str) -> Vec<u8> {
    let mut end = beginning.as_bytes().to_vec();
    // UTF-8 has no byte of 255.
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
