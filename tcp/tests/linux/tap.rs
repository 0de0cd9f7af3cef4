//! A link between two namespaces that loses frames, delays them, changes their order, and doubles some.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::wire::{DEVICE, HERE, THERE, Wire, ip, set_up};

/// What the link does to frames, in each direction.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    /// Of a thousand.
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
    /// Of a thousand: they are `delay` later than others.
    pub(crate) late: u32,
    /// How long every frame takes.
    pub(crate) delay: Duration,
}

/// Ends with this.
pub(crate) struct Linked {
    pub(crate) wire: Wire,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Linked {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

/// Frames on their way to one end, in the order in which they arrive.
type Way = BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>;

impl Link {
    /// Lays the link.
    pub(crate) fn lay(self) -> Linked {
        let wire = Wire::bare();
        let here = tap(DEVICE);
        let there = wire.there(|| tap("vb"));
        // Addresses of Ethernet are known, so that it is segments that are lost.
        let (mac, other) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        ip(&format!("link set {DEVICE} address {mac} txqueuelen 10000"));
        set_up(DEVICE, HERE);
        wire.there(|| {
            ip(&format!("link set vb address {other}"));
            set_up("vb", THERE);
        });
        for n in 0..2 {
            ip(&format!("neigh replace {} lladdr {other} dev {DEVICE}", THERE[n]));
            wire.there(|| ip(&format!("neigh replace {} lladdr {mac} dev vb", HERE[n])));
        }
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || self.carry([here, there], &stopped));
        Linked { wire, stop: Some(stop), thread: Some(thread) }
    }

    /// Carries frames until the other end of `stopped` is closed.
    fn carry(self, mut ends: [File; 2], stopped: &UnixStream) {
        let mut ways: [Way; 2] = [Way::new(), Way::new()];
        let (mut random, mut number) = (0x9e37_79b9_7f4a_7c15_u64, 0);
        let mut frame = vec![0; 65_536];
        loop {
            for from in 0..2 {
                while let Ok(len) = ends[from].read(&mut frame) {
                    // xorshift64.
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let is = |of: u32, shift: u32| (random >> shift) % 1000 < u64::from(of);
                    let count = match () {
                        () if is(self.lost, 0) => 0,
                        () if is(self.doubled, 20) => 2,
                        () => 1,
                    };
                    let delay = if is(self.late, 40) { self.delay * 2 } else { self.delay };
                    for _ in 0..count {
                        number += 1;
                        let entry = (Instant::now() + delay, number, frame[..len].to_vec());
                        ways[1 - from].push(Reverse(entry));
                    }
                }
            }
            let now = Instant::now();
            for (end, way) in ends.iter_mut().zip(&mut ways) {
                while way.peek().is_some_and(|first| first.0.0 <= now) {
                    let Some(Reverse((_, _, frame))) = way.pop() else { break };
                    // A device that goes loses it, too.
                    let _ = end.write(&frame);
                }
            }
            let next = ways.iter().filter_map(|way| way.peek().map(|first| first.0.0)).min();
            let time = next.map(|next| next.saturating_duration_since(Instant::now()));
            let time = time.map(|time| Timespec {
                tv_sec: time.as_secs() as i64,
                tv_nsec: time.subsec_nanos().into(),
            });
            let [here, there] = &ends;
            let mut all = [
                PollFd::new(here, PollFlags::IN),
                PollFd::new(there, PollFlags::IN),
                PollFd::new(stopped, PollFlags::IN),
            ];
            poll(&mut all, time.as_ref()).unwrap();
            if !all[2].revents().is_empty() {
                return;
            }
        }
    }
}

/// Makes a device of Ethernet in the namespace of this thread, whose frames this process reads and writes.
fn tap(name: &str) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open("/dev/net/tun").unwrap();
    // `struct ifreq` of linux/if.h: a name, and here flags; TUNSETIFF, IFF_TAP and IFF_NO_PI of linux/if_tun.h.
    const TUNSETIFF: u32 = 0x4004_54ca;
    let mut request = [0_u8; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    request[16..18].copy_from_slice(&0x1002_u16.to_ne_bytes());
    // SAFETY: the file is open, and the request is a whole `struct ifreq`, into which the system may write.
    #[allow(unsafe_code, reason = "there is no safe call for it")]
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF.into(), request.as_mut_ptr()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    file
}
