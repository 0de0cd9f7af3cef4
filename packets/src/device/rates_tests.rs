use std::sync::Mutex;

use super::*;
use crate::device::permitted::is_permitted;

const TIME: Duration = Duration::from_secs(3);
const ROUNDS: usize = 5;

/// Rounds of a measurement, bare and through the switch in turns.
#[derive(Default)]
struct Rounds([Vec<f64>; 3]);

impl Rounds {
    fn add(&mut self, what: &str, bare: f64, switch: f64) {
        println!("{}", line(what, [bare, switch, switch / bare]));
        let all = self.0.iter_mut().zip([bare, switch, switch / bare]);
        all.for_each(|(rounds, value)| rounds.push(value));
    }

    fn end(mut self, what: &str) {
        let medians = std::array::from_fn(|n| median(&mut self.0[n]));
        println!("{}; 0.9 is the aim", line(&format!("{what}, medians of {ROUNDS}"), medians));
    }
}

fn line(what: &str, [bare, switch, share]: [f64; 3]) -> String {
    format!("{what}: bare {bare:.3}, switch {switch:.3} million a second, {share:.2} of it")
}

/// The one in the middle; of two, the mean.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
    f64::midpoint(low, high)
}

fn compare(what: &str, [bare, switch]: [Course; 2]) {
    let wire = Wire::new().unwrap();
    let mut rounds = Rounds::default();
    for _ in 0..ROUNDS {
        let rate = |course| {
            let moved = wire.measure(course, TIME).unwrap();
            println!("{course:?}: {} lost of {}", moved.lost, moved.lost + moved.frames);
            moved.frames as f64 / moved.time.as_secs_f64() / 1e6
        };
        rounds.add(what, rate(bare), rate(switch));
    }
    rounds.end(what);
}

#[test]
fn a_round_is_told_and_the_median_is_in_the_middle() {
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    let expected = "out: bare 2.000, switch 1.900 million a second, 0.95 of it";
    assert_eq!(line("out", [2.0, 1.9, 0.95]), expected);
}

#[test]
fn what_is_sent_and_does_not_come_is_lost() {
    let (source, came) = (Source::default(), Mutex::new(0_u64));
    let lossy = || {
        while !source.is_over() {
            let mut came = came.lock().unwrap();
            if !source.is_paused() {
                source.note(10);
                *came += 7;
            }
            drop(came);
            std::thread::yield_now();
        }
        Ok(())
    };
    let count = || Ok(*came.lock().unwrap());
    let measured = || source.measure(Duration::from_millis(20), count);
    let moved = beside(&source, lossy, measured).unwrap();
    assert!(moved.frames > 0);
    assert_eq!(7 * moved.lost, 3 * moved.frames);
}

#[test]
fn frames_come_each_way() {
    if !is_permitted() {
        return;
    }
    for course in [Course::OutBare, Course::Out, Course::InBare, Course::In] {
        let wire = Wire::new().unwrap();
        // A machine that is busy may have no time for any of them so soon.
        let moved = (0..20)
            .map(|_| wire.measure(course, Duration::from_millis(50)).unwrap())
            .find(|moved| moved.frames > 0);
        println!("{course:?}: {:?}", moved.expect("frames come"));
    }
}

#[test]
#[ignore = "it measures"]
fn out() {
    compare("out, 64 octets", [Course::OutBare, Course::Out]);
}

#[test]
#[ignore = "it measures"]
fn come_in() {
    compare("in, 64 octets", [Course::InBare, Course::In]);
}

#[test]
#[ignore = "it measures"]
fn program() {
    for (version, to) in [("IPv4", "192.0.2.1:9"), ("IPv6", "[2001:db8::1]:9")] {
        for tuples in [1, 1_000, 100_000] {
            let Looked { to_port, to_system } =
                super::program(to.parse().unwrap(), tuples).unwrap();
            println!(
                "{version}, {tuples} tuples: {to_port} ns to a socket, {to_system} ns to the system"
            );
        }
    }
}
