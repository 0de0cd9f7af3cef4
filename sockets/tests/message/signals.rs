//! Signals that come while calls wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use quicket::message::{Errno, MsgFlags};

use crate::pair::{NEW_FIN, PATIENCE, Tls, handshake, listener, send, socket};

const SOCKETS: usize = 3;
/// How often each wait is to be ended by a signal.
const TIMES: usize = 5;

extern "C" fn do_nothing(_: i32) {}

fn handle(signal: Signal, flags: SaFlags) {
    let action = SigAction::new(SigHandler::Handler(do_nothing), flags, SigSet::empty());
    // SAFETY: the handler touches nothing.
    unsafe { sigaction(signal, &action) }.unwrap();
}

/// One thread leads and the others wait in the queue. Signals come with and without SA_RESTART: to
/// go on is for the caller to decide, who knows both.
#[test]
fn signals_end_waits_of_the_leader_and_of_others_and_nothing_is_lost() {
    handle(Signal::SIGUSR1, SaFlags::empty());
    handle(Signal::SIGUSR2, SaFlags::SA_RESTART);
    let (listening, address) = listener();
    let tls = Tls::new();
    let pairs: Vec<_> = (0..SOCKETS)
        .map(|_| {
            let connecting = socket();
            connecting.connect(address).unwrap();
            handshake(&tls, &connecting, &listening)
        })
        .collect();
    let ended: Vec<AtomicUsize> = (0..SOCKETS).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let (tell, threads) = mpsc::channel();
        let wait = |number: usize| {
            let (tell, (_, accepted), ended) = (tell.clone(), &pairs[number], &ended[number]);
            scope.spawn(move || {
                tell.send(pthread_self()).unwrap();
                accepted.set_interruptible(true);
                let mut buffer = [0; 100];
                loop {
                    match accepted.recv_message(&mut buffer, MsgFlags::NONE) {
                        Err(Errno::EINTR) => ended.fetch_add(1, Ordering::Relaxed),
                        other => return buffer[..other.unwrap().len].to_vec(),
                    };
                }
            })
        };
        // Kept until the end: there is nobody else whom the signals could reach.
        let waiting: Vec<_> = (0..SOCKETS).map(wait).collect();
        let threads: Vec<_> = threads.iter().take(SOCKETS).collect();
        let start = Instant::now();
        let mut signals = [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().cycle();
        let mut disturb = || {
            let signal = signals.next().unwrap();
            for thread in &threads {
                // One that has its data may be through.
                let _ = pthread_kill(*thread, signal);
            }
            thread::sleep(Duration::from_micros(200));
        };
        while ended.iter().any(|count| count.load(Ordering::Relaxed) < TIMES) {
            assert!(start.elapsed() < PATIENCE, "signals go unnoticed: {ended:?}");
            disturb();
        }
        for (number, (connected, _)) in pairs.iter().enumerate() {
            send(connected, &[number as u8; 50], -1, NEW_FIN).unwrap();
        }
        while waiting.iter().any(|thread| !thread.is_finished()) {
            assert!(start.elapsed() < 2 * PATIENCE, "data was lost");
            disturb();
        }
        for (number, thread) in waiting.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), [number as u8; 50]);
        }
    });
}
