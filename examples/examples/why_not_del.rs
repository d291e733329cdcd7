//! Why is `SET NX PX` with a plain DEL not enough?
//!
//! Because DEL does not ask whose lock it is. A holder that comes late frees the lock of the one who has taken it meanwhile,
//! and a third one then holds beside the second. `lock_naive` keeps this and two other locks of many tutorials to show how
//! they break; `lock_redis::Token` releases by a script that compares first.

use std::time::Duration;

use lock_core::{Lease, Locks, Release};
use lock_naive::BlindDelete;
use lock_testkit::RedisServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start()?;
    let connect = async || BlindDelete::connect(&server.url()).await.map(Locks::new);
    let (first, second, third) = (connect().await?, connect().await?, connect().await?);

    let late = first.lock("orders/42")?.lease(Lease::fixed(Duration::from_millis(200))).acquire().await?;
    let guard = second.lock("orders/42")?.acquire().await?;

    assert_eq!(late.release().await?, Release::Released, "it is even told that it released its own");
    let beside = third.lock("orders/42")?.acquire().await?;
    assert!(guard.is_held() && beside.is_held());
    println!("two holders at once");
    Ok(())
}
