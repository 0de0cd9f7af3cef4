use std::sync::mpsc::{self, Sender};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;
use crate::message::hub::set_coming;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A waker that looks at the socket that it is woken for.
struct Curious(Socket, Sender<SocketAddr>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.local_addr()).unwrap();
    }
}

#[test]
fn a_waker_may_use_the_socket() {
    let socket = Socket::new_v4();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.set_alpn(b"curious").unwrap();
    socket.listen(1).unwrap();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Curious(socket.clone(), tell)));
    assert!(!socket.poll_change(&PollId::unique(), &waker).readable);
    drop(waker);
    let address = socket.local_addr();
    let stops = thread::spawn(move || socket.listen(0));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(address), "it waits for a lock");
    stops.join().unwrap().unwrap();
}

/// An address that another socket is just binding is waited for, but not with the socket locked.
#[test]
fn a_socket_can_be_used_while_it_is_bound() {
    let first = Socket::new_v4();
    first.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr();
    set_coming(address, true);
    let socket = Socket::new_v4();
    let (tell, bound) = mpsc::channel();
    let binds = thread::spawn({
        let socket = socket.clone();
        move || tell.send(socket.bind(address)).unwrap()
    });
    let (mut free, mut looks) = (0, 0);
    while bound.try_recv().is_err() {
        looks += 1;
        free += u32::from(socket.shared.control.try_lock().is_ok());
        thread::sleep(Duration::from_millis(1));
    }
    binds.join().unwrap();
    set_coming(address, false);
    assert!(free * 2 > looks, "locked in {} of {looks} looks", looks - free);
}
