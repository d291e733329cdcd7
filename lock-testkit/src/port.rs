use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// A port of 127.0.0.1 on which nobody listens now; another process may take it before the caller does.
///
/// It lies below the range from which the kernel gives ports to outgoing connections. A port of that range can be taken by
/// any client while its server is being restarted, and a client that calls a dead server in it can even reach itself.
pub(crate) fn free_port() -> io::Result<u16> {
    const FIRST: u16 = 10_000;
    let outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_ascii_whitespace().next()?.parse::<u16>().ok())
        .filter(|first| *first > FIRST + 1_000)
        .unwrap_or(32_768);
    for _ in 0..1_000 {
        let port = fastrand::u16(FIRST..outgoing);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
    let says = format!("of 1,000 ports tried between {FIRST} and {outgoing} none is free");
    Err(io::Error::new(io::ErrorKind::AddrInUse, says))
}
