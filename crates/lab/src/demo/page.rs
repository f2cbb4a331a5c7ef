//! The router's web page, from the machine's own loop-back address: the router listens on that of its namespace.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use testbed::Namespace;

/// Where the router listens, in its namespace.
pub(super) const ADDRESS: &str = "127.0.0.1:8779";

/// Connections at a time.
const CONNECTIONS: usize = 32;

/// Carries connections to the machine's loop-back address on to the router's, until the process ends. Returns the page's address.
///
/// # Errors
/// No port of the loop-back address is free, or no thread can be started.
pub(super) fn open(namespace: &Namespace) -> io::Result<String> {
    // The usual port, or where that is taken any other one.
    let listener = TcpListener::bind(ADDRESS).or_else(|_| TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let name = namespace.name().to_owned();
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("page".to_owned()).spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let (open, name) = (open.clone(), name.clone());
            if open.fetch_add(1, Ordering::Relaxed) < CONNECTIONS {
                let carried = std::thread::Builder::new().spawn(move || {
                    // A router or browser that is gone ends the connection.
                    let _ = carry(&name, near);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
                drop(carried);
            } else {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(format!("http://{address}/"))
}

fn carry(namespace: &str, near: TcpStream) -> io::Result<()> {
    let far = testbed::enter(namespace, || TcpStream::connect(ADDRESS))?;
    let (mut from_near, mut to_far) = (near.try_clone()?, far.try_clone()?);
    let there = std::thread::Builder::new().spawn(move || {
        let _ = io::copy(&mut from_near, &mut to_far);
        // It may be closed already.
        let _ = to_far.shutdown(Shutdown::Write);
    })?;
    let (mut from_far, mut to_near) = (far, near);
    let back = io::copy(&mut from_far, &mut to_near);
    let _ = to_near.shutdown(Shutdown::Both);
    // A panic of that thread was printed when it happened.
    let _ = there.join();
    back.map(drop)
}
