use std::ops::Deref;
use std::{io, thread};

use super::RedisServer;

/// Several private Redis servers that know nothing of each other, as Redlock wants them.
///
/// # Examples
///
/// ```
/// use lock_testkit::RedisNodes;
///
/// let nodes = RedisNodes::start(3)?;
/// nodes[0].kill()?;
/// nodes[1].command::<()>(&["SET", "a", "1"])?;
/// assert_eq!(nodes[2].command::<u64>(&["EXISTS", "a"])?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RedisNodes(Vec<RedisServer>);

impl RedisNodes {
    /// Starts `count` servers at the same time. It takes about 20 ms.
    ///
    /// # Errors
    ///
    /// As for [`RedisServer::start`].
    pub fn start(count: usize) -> io::Result<Self> {
        thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(RedisServer::start)).collect();
            let started = starting.into_iter().map(|node| node.join().expect("starting a server does not panic"));
            started.collect::<io::Result<_>>().map(Self)
        })
    }

    /// The URL of each.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.iter().map(RedisServer::url).collect()
    }
}

impl Deref for RedisNodes {
    type Target = [RedisServer];

    fn deref(&self) -> &[RedisServer] {
        &self.0
    }
}
