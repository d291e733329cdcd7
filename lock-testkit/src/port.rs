use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// A port of 127.0.0.1 that no other user of this crate gets while it lives, in whatever process: a server that is down for a
/// moment finds it free again. A program that does not know of the reservation may still take it.
///
/// The reservation is a Unix socket with an abstract name. The kernel ends it with the process, it leaves no file, and it
/// reaches as far as the port does: the network namespace.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reserved: UnixListener,
}

impl Port {
    /// Reserves a port on which nobody listens now.
    ///
    /// It lies below the range from which the kernel gives ports to outgoing connections. A port of that range can be taken
    /// by any client while its server is being restarted, and a client that calls a dead server in it can even reach itself.
    pub(crate) fn free() -> io::Result<Self> {
        const FIRST: u16 = 10_000;
        let outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
            .ok()
            .and_then(|range| range.split_ascii_whitespace().next()?.parse::<u16>().ok())
            .filter(|first| *first > FIRST + 1_000)
            .unwrap_or(32_768);
        for _ in 0..1_000 {
            let number = fastrand::u16(FIRST..outgoing);
            let port = Self::reserve(number).and_then(|port| {
                TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
                Ok(port)
            });
            match port {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                port => return port,
            }
        }
        let says = format!("of 1,000 ports tried between {FIRST} and {outgoing} none is free");
        Err(io::Error::new(io::ErrorKind::AddrInUse, says))
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }

    fn reserve(number: u16) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(format!("hasp-testkit-port-{number}"))?;
        Ok(Self { number, _reserved: UnixListener::bind_addr(&name)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_while_its_owner_lives_though_nobody_listens_on_it() {
        let port = Port::free().unwrap();
        let number = port.number();
        drop(TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap());
        assert_eq!(Port::reserve(number).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(port);
        drop(Port::reserve(number).unwrap());
    }
}
