//! Answers that come during a call, after it, or while it returns.

use crate::handover::Handover;
use crate::sync::{Arc, Mutex, thread};
use crate::{check, find};

/// A handshake whose calls are answered, and who went on with it.
struct Story {
    handover: Handover,
    handshake: Mutex<Handshake>,
}

#[derive(Default)]
struct Handshake {
    /// Answers that nobody has gone on with.
    waiting: usize,
    /// How often somebody went on.
    steps: usize,
}

impl Story {
    fn begin() -> Arc<Self> {
        Arc::new(Self { handover: Handover::new(), handshake: Mutex::default() })
    }

    fn answer(&self) {
        self.handshake.lock().unwrap().waiting += 1;
        if self.handover.answer() {
            self.go_on();
        }
    }

    fn go_on(&self) {
        let mut handshake = self.handshake.lock().unwrap();
        handshake.waiting = 0;
        handshake.steps += 1;
    }

    /// Makes so many calls, each answered by a thread of its own.
    fn call(self: &Arc<Self>, calls: usize, looks: bool) {
        let mut givers = Vec::new();
        for _ in 0..calls {
            self.handover.begin();
            let story = Arc::clone(self);
            givers.push(thread::spawn(move || story.answer()));
            let answered = self.handover.end();
            if answered && looks {
                self.go_on();
            }
        }
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        let handshake = self.handshake.lock().unwrap();
        assert_eq!(handshake.waiting, 0, "an answer is lost");
        assert!(handshake.steps <= calls, "two went on with one answer");
    }
}

#[test]
fn one_goes_on_with_an_answer_that_comes_while_the_call_returns() {
    check(|| Story::begin().call(1, true));
}

/// An answer to one call may come in the midst of the next one.
#[test]
fn no_answer_of_several_calls_is_lost() {
    check(|| Story::begin().call(3, true));
}

/// That is what these tests find: a caller that does not look whether the answer came.
#[test]
#[should_panic(expected = "an answer is lost")]
fn a_caller_that_does_not_look_is_found() {
    find(|| Story::begin().call(1, false));
}
