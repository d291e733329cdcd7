//! How does a function that locks call another one that takes the same lock?
//!
//! By default each acquisition is a stranger to every other, so the inner one would wait for the outer one for ever. Where
//! that must work, make an `Owner` and ask for the lock in its name: it may acquire again what it holds. Each guard is one
//! hold, and the lock is free when the last has gone.

use lock_core::{Locks, Owner, Result};
use lock_memory::Memory;

#[tokio::main]
async fn main() -> Result<()> {
    let locks = Locks::new(Memory::new());
    let me = Owner::random();

    move_subtree(&locks, &me).await?;

    assert!(locks.lock("tree")?.try_acquire().await?.is_some(), "the last hold has been given back");
    println!("moved; the tree is free again");
    Ok(())
}

async fn move_subtree(locks: &Locks, me: &Owner) -> Result<()> {
    let outer = locks.lock("tree")?.owner(me).acquire().await?;
    assert!(locks.lock("tree")?.try_acquire().await?.is_none(), "to a stranger it is held");

    remove_node(locks, me).await?;
    assert!(outer.is_held(), "the inner hold has ended, ours has not");
    insert_node(locks, me).await?;

    let _ = outer.release().await?;
    Ok(())
}

async fn remove_node(locks: &Locks, me: &Owner) -> Result<()> {
    let inner = locks.lock("tree")?.owner(me).acquire().await?;
    let _ = inner.release().await?;
    Ok(())
}

async fn insert_node(locks: &Locks, me: &Owner) -> Result<()> {
    let inner = locks.lock("tree")?.owner(me).acquire().await?;
    let _ = inner.release().await?;
    Ok(())
}
