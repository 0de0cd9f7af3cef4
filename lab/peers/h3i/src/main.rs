//! Sends what h3i can break of HTTP/3 to `quicket gateway` or `quicket serve`, and checks that each connection or stream
//! ends with the code that RFC 9114 and RFC 9204 demand, and that the server goes on.
//!
//! Arguments: the server's port on 127.0.0.1, and what it is: `gateway`, which answers `/ok` with 204, or `serve`, which
//! has a file of that name. A third argument selects cases by a part of their names.

mod case;
mod cases;
mod run;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use case::Server;

/// Cases that run at the same time: they wait more than they work.
const AT_ONCE: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(port), Some(server)) = (
        arguments.first().and_then(|port| port.parse().ok()),
        arguments.get(1).and_then(|name| Server::of(name)),
    ) else {
        eprintln!("arguments: PORT gateway|serve [PART OF A NAME]");
        return ExitCode::from(2);
    };
    let wanted = arguments.get(2).map_or("", String::as_str);
    let cases = cases::all(server).into_iter().filter(|case| case.name.contains(wanted));
    let cases: VecDeque<_> = cases.collect();
    let count = cases.len();
    let good = cases.iter().filter(|case| case.is_good()).count();
    let (left, failed) = (Mutex::new(cases), AtomicUsize::new(0));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next() {
                    if let Err(outcome) = run::run(port, server, &case) {
                        let case::Case { name, section, expected, .. } = &case;
                        println!("{name} ({section}): {outcome}, not {expected}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{count} cases, {failed} failed, {good} break no rule");
    ExitCode::from(u8::from(failed > 0 || count == 0))
}
