//! Credentials and rights.

use std::sync::Arc;

use lock_core::{Backend, ErrorKind, Release};
use lock_zookeeper::{Config, ZooKeeper};
use zookeeper_client::Acls;

use crate::ground::{Ground, claim, connector, take};

#[tokio::test(flavor = "multi_thread")]
async fn locks_made_by_creator_all_are_for_those_who_have_the_password() {
    let ground = Ground::new();
    let private = Config::new().with_prefix("/private").with_acls(&Acls::creator_all());
    let with = async |user: &str, config: &Config| {
        let connector = connector().with_auth("digest", user.as_bytes());
        let made = ZooKeeper::from_connector(connector, ground.ensemble.hosts(), config.clone()).await;
        Arc::new(made.unwrap()) as Arc<dyn Backend>
    };
    let (ours, also_ours) = (with("app:secret", &private).await, with("app:secret", &private).await);
    let held = take(&ours, "door").await;
    assert!(also_ours.try_acquire(&claim("door")).await.unwrap().is_none());

    let theirs = with("app:wrong", &Config::new().with_prefix("/private")).await;
    let error = theirs.try_acquire(&claim("door")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("Connector::with_auth"), "{error}");
    assert_eq!(theirs.force_release(&held.claim.key).await.unwrap_err().kind(), ErrorKind::Rejected);
    assert!(!format!("{ours:?} {theirs:?} {private:?}").contains("secret"));

    assert_eq!(ours.release(&held).await.unwrap(), Release::Released);
    assert_eq!(also_ours.release(&take(&also_ours, "door").await).await.unwrap(), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn creator_all_without_credentials_is_refused_with_what_to_do() {
    let ground = Ground::new();
    let config = Config::new().with_prefix("/nobody").with_acls(&Acls::creator_all());
    let ours = crate::ground::open(&ground.ensemble.hosts(), config).await;
    let error = ours.try_acquire(&claim("door")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("needs a session with credentials"), "{error}");
}
