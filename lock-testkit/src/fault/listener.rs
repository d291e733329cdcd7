use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection::{self, Shared};
use crate::port::Port;

/// The thread of a proxy: it accepts connections and obeys orders. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    /// Also its own while it refuses connections.
    port: Port,
    /// Locked over an order and its answer, so at most one is under way. `None` only while this is being dropped.
    orders: Mutex<Option<mpsc::Sender<(Order, Answer)>>>,
    thread: Option<JoinHandle<()>>,
}

type Answer = SyncSender<io::Result<()>>;

#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Cut,
    Refuse,
    Accept,
}

impl Listener {
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (port, socket) = bind()?;
        let addr = addr_of(&port);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, to_do) = mpsc::channel(1);
        let thread = thread::Builder::new().name("proxy".into()).spawn(move || {
            runtime.block_on(run(addr, socket, shared, to_do));
        })?;
        Ok(Self { port, orders: Mutex::new(Some(orders)), thread: Some(thread) })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        addr_of(&self.port)
    }

    /// Has an order carried out.
    pub(super) fn order(&self, order: Order) -> io::Result<()> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, done) = sync_channel(1);
        let orders = orders.as_ref().expect("it is taken by drop only");
        orders.try_send((order, answer)).expect("the thread runs, and has no other order");
        done.recv().expect("the thread answers every order")
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.orders.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn addr_of(port: &Port) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port.number()).into()
}

fn bind() -> io::Result<(Port, TcpListener)> {
    loop {
        let port = Port::free()?;
        match TcpListener::bind(addr_of(&port)) {
            // Somebody was faster.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                return Ok((port, socket));
            }
        }
    }
}

async fn run(addr: SocketAddr, socket: TcpListener, shared: Arc<Shared>, mut to_do: mpsc::Receiver<(Order, Answer)>) {
    let socket = tokio::net::TcpListener::from_std(socket).expect("the socket does not block and the runtime has I/O");
    let mut listening = Some(socket);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = to_do.recv() => {
                let Some((order, answer)) = order else { return };
                let done = match order {
                    Order::Cut => {
                        // Waits until each has closed its sockets.
                        connections.shutdown().await;
                        Ok(())
                    }
                    Order::Refuse => {
                        listening = None;
                        Ok(())
                    }
                    Order::Accept if listening.is_some() => Ok(()),
                    Order::Accept => tokio::net::TcpListener::bind(addr).await.map(|socket| listening = Some(socket)),
                };
                answer.send(done).expect("whoever gives an order waits for the answer");
            }
            accepted = accept(listening.as_ref()) => match accepted {
                Ok(client) => {
                    shared.tap().connect();
                    connections.spawn(connection::serve(Arc::clone(&shared), client));
                }
                // A client that has gone before it was accepted is its own affair.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => panic!("the proxy cannot accept connections: {error}"),
            },
            Some(ended) = connections.join_next() => ended.expect("a connection's task does not panic"),
        }
    }
}

async fn accept(listening: Option<&tokio::net::TcpListener>) -> io::Result<tokio::net::TcpStream> {
    match listening {
        Some(socket) => socket.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}
