//! What happens to my locks while the server is away?
//!
//! A lock that you hold stays yours until its deadline; if the server is back before, the renewal goes through and nothing
//! is lost. Who wants a new lock meanwhile hears `Unavailable`, not that somebody else holds it.

use std::time::Duration;

use lock_core::{ErrorKind, Lease, Locks};
use lock_redis::Token;
use lock_testkit::RedisServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start()?;
    let locks = Locks::new(Token::connect(&server.url()).await?);
    let lease = Lease::renewed(Duration::from_secs(30));
    let guard = locks.lock("orders/42")?.lease(lease).acquire().await?;

    server.stop()?;
    let refused =
        locks.lock("orders/43")?.acquire_within(Duration::from_millis(500)).await.expect_err("nobody answers");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    println!("{refused}");
    server.cont()?;

    assert!(guard.is_held());
    guard.extend(Duration::from_secs(60)).await?;
    let _ = locks.lock("orders/43")?.acquire().await?;
    println!("back, and still held");
    Ok(())
}
