//! Servers that are too old, lack something, or may forget.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use lock_core::ErrorKind;
use lock_redis::{Reentrant, Token};
use lock_testkit::RedisServer;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Plays a server: each command is answered as the script says, by its name, and by `+OK` where it says nothing.
async fn responder(script: &[(&'static str, &str)]) -> SocketAddr {
    let script: Arc<HashMap<_, _>> =
        Arc::new(script.iter().map(|(command, answer)| (*command, (*answer).to_owned())).collect());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, Arc::clone(&script)));
        }
    });
    addr
}

async fn answer(stream: TcpStream, script: Arc<HashMap<&'static str, String>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut words = Vec::new();
        for _ in 0..number(&mut stream, '*').await? {
            let mut word = vec![0; number(&mut stream, '$').await? + 2];
            stream.read_exact(&mut word).await.ok()?;
            word.truncate(word.len() - 2);
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        let answer = script.get(&*words[0].to_uppercase()).map_or("+OK\r\n", String::as_str);
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

async fn number(stream: &mut BufReader<TcpStream>, sign: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_prefix(sign)?.trim().parse().ok()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

const HELLO: &str = "%1\r\n$5\r\nproto\r\n:3\r\n";

#[tokio::test]
async fn a_server_without_resp3_is_refused() {
    let addr = responder(&[("HELLO", "-ERR unknown command `HELLO`, with args beginning with: `3`,\r\n")]).await;
    let error = Token::connect(&format!("redis://{addr}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("does not speak RESP3"), "{error}");
    assert!(error.to_string().contains("6.2 or newer"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_its_version() {
    let info = bulk("# Server\r\nredis_version:6.0.16\r\n");
    let addr = responder(&[("HELLO", HELLO), ("INFO", &info)]).await;
    let error = Reentrant::connect(&format!("redis://{addr}")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("Redis 6.0.16, and 6.2 or newer is needed"), "{error}");
}

#[tokio::test]
async fn a_server_without_scripts_is_refused() {
    let info = bulk("# Server\r\nredis_version:7.4.0\r\n");
    let unknown = "-ERR unknown command\r\n";
    let script = [("HELLO", HELLO), ("INFO", &info), ("SCRIPT", unknown), ("EVAL", unknown), ("EVALSHA", unknown)];
    let error = Token::connect(&format!("redis://{}", responder(&script).await)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("does not run Lua scripts"), "{error}");
}

#[tokio::test]
async fn something_else_at_the_port_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        }
    });
    let error = Token::connect(&format!("redis://{addr}")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Backend | ErrorKind::Unavailable), "{error:?}");
}

/// Keeps the warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_policy_that_may_evict_locks_is_warned_about_once() {
    for (policy, warned) in [("noeviction", 0), ("volatile-lru", 1), ("allkeys-random", 1), ("volatile-ttl", 1)] {
        let server = RedisServer::builder().config("maxmemory-policy", policy).start().unwrap();
        let warnings = Warnings::default();
        let _until_the_end = tracing::subscriber::set_default(warnings.clone());
        let backend = Token::connect(&server.url()).await.unwrap();
        crate::ground::take(&backend, "a", crate::ground::millis(500)).await;
        let warnings = warnings.0.lock().unwrap();
        let about_it: Vec<_> = warnings.iter().filter(|text| text.contains("may evict locks")).collect();
        assert_eq!(about_it.len(), warned, "{policy}: {warnings:?}");
        assert!(about_it.iter().all(|text| text.contains(policy)), "{about_it:?}");
    }
}
