//! etcd's JSON gateway, over HTTP as plain as it needs to be: one request to a connection, which the server closes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The longest that a request waits for its answer.
const LIMIT: Duration = Duration::from_secs(10);

pub(super) fn get(addr: SocketAddr, path: &str) -> io::Result<Value> {
    json(&text(addr, path)?)
}

/// The body of an answer that is not JSON.
pub(super) fn text(addr: SocketAddr, path: &str) -> io::Result<String> {
    exchange(LIMIT, addr, &format!("GET {path} HTTP/1.0\r\nHost: etcd\r\n\r\n"))
}

pub(super) fn post(addr: SocketAddr, path: &str, request: &Value) -> io::Result<Value> {
    post_within(LIMIT, addr, path, request)
}

pub(super) fn post_within(limit: Duration, addr: SocketAddr, path: &str, request: &Value) -> io::Result<Value> {
    let body = request.to_string();
    let length = body.len();
    let request = format!("POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}");
    json(&exchange(limit, addr, &request)?)
}

fn exchange(limit: Duration, addr: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&addr, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    body(&answer).map(ToOwned::to_owned)
}

fn body(answer: &str) -> io::Result<&str> {
    let invalid = || invalid(answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head.split_ascii_whitespace().nth(1).ok_or_else(invalid)?;
    if status != "200" {
        return Err(io::Error::other(format!("etcd answers {status}: {}", body.trim())));
    }
    Ok(body)
}

fn json(body: &str) -> io::Result<Value> {
    serde_json::from_str(body).map_err(|_not_json| invalid(body))
}

fn invalid(answer: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no answer of etcd: {answer:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_body_or_an_error() {
        let parse = |answer| body(answer).and_then(json);
        let good = parse("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"health\":\"true\"}").unwrap();
        assert_eq!(good["health"], "true");
        let refused = parse("HTTP/1.0 404 Not Found\r\n\r\n{\"error\":\"requested lease not found\"}\n").unwrap_err();
        assert!(refused.to_string().contains("404: {\"error\":\"requested lease not found\"}"), "{refused}");
        for torn in ["", "HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\n{"] {
            assert_eq!(parse(torn).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
