//! How do I lock across processes, with Redis?
//!
//! Take `lock_redis::Token` for the backend; all the rest stays as it is. This program starts a private server to have one;
//! yours has a URL in its configuration.

use lock_core::{Locks, Release};
use lock_redis::Token;
use lock_testkit::RedisServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start()?;

    // Two connections stand for two processes.
    let ours = Locks::new(Token::connect(&server.url()).await?);
    let theirs = Locks::new(Token::connect(&server.url()).await?);

    let guard = ours.lock("orders/42")?.acquire().await?;
    assert!(theirs.lock("orders/42")?.try_acquire().await?.is_none());

    let waiting = tokio::spawn(async move { theirs.lock("orders/42")?.acquire().await });
    let ours_was = guard.fencing_token();
    assert_eq!(guard.release().await?, Release::Released);
    let theirs_is = waiting.await??;
    assert!(theirs_is.fencing_token() > ours_was);
    println!("handed over, with token {:?} after {ours_was:?}", theirs_is.fencing_token());
    Ok(())
}
