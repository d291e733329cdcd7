use std::sync::LazyLock;

use lock_redis::Script;

pub(crate) static ACQUIRE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("acquire.lua")));
pub(crate) static MINT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("mint.lua")));
pub(crate) static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));
pub(crate) static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));
pub(crate) static INSPECT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("inspect.lua")));
pub(crate) static FORCE_RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("force_release.lua")));
