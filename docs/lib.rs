//! Runs the code of the README and of these pages as doc tests. Nothing else is in here.

#[doc = include_str!("../README.md")]
mod readme {}

#[doc = include_str!("choosing.md")]
mod choosing {}

#[doc = include_str!("safety.md")]
mod safety {}

#[doc = include_str!("strategies/memory.md")]
mod memory {}

#[doc = include_str!("strategies/naive.md")]
mod naive {}

#[doc = include_str!("strategies/redis-token.md")]
mod redis_token {}

#[doc = include_str!("strategies/redis-reentrant.md")]
mod redis_reentrant {}

#[doc = include_str!("strategies/redlock.md")]
mod redlock {}

#[doc = include_str!("strategies/etcd.md")]
mod etcd {}

#[doc = include_str!("strategies/zookeeper.md")]
mod zookeeper {}

#[doc = include_str!("testing.md")]
mod testing {}

#[doc = include_str!("../CONTRIBUTING.md")]
#[allow(clippy::needless_doctest_main, reason = "the code shows a whole file")]
mod contributing {}
