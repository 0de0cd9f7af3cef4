//! A register and a store that is a value.

extern crate std;

use std::collections::HashSet;
use std::string::String;

use super::*;

/// A time since 1970, in milliseconds, at which this host's clock began.
const EPOCH: Millis = 1_700_000_000_000;
const CONFIG: Config = Config { deadline: 5, replicas: 0 };

/// A store that keeps everything.
struct Store {
    info: Info,
    mark: Option<String>,
    keys: HashSet<Ticket>,
    /// Its clock is ahead by so much.
    ahead: Millis,
    denies: bool,
}

impl Store {
    fn new() -> Self {
        let info = Info { run_id: "a".into(), replication_id: "b".into(), ..Info::default() };
        Self { info, mark: None, keys: HashSet::new(), ahead: EPOCH, denies: true }
    }

    fn set(&mut self, ticket: Ticket) -> SetReply {
        if self.keys.insert(ticket) { SetReply::Set } else { SetReply::Held }
    }

    fn trailer(&self, now: Millis) -> Trailer<'_> {
        let evicted = self.info.may_evict.then_some(self.info.evicted);
        Trailer { mark: self.mark.as_ref().map(String::as_bytes), time: now + self.ahead, evicted }
    }

    fn look(&self, now: Millis) -> Look<'_> {
        Look {
            info: &self.info,
            time: now + self.ahead,
            mark: self.mark.as_ref().map(String::as_bytes),
            denies: self.denies,
            name: (now + 1).to_be_bytes(),
        }
    }
}

/// Looks until there is nothing to write.
fn look(register: &mut Register, store: &mut Store, now: Millis) -> Next {
    loop {
        match register.looked(now, store.look(now)) {
            Next::Write(mark) => store.mark = Some(mark.text().into()),
            next => return next,
        }
    }
}

fn ticket(number: u32) -> Ticket {
    let mut ticket = [0; 12];
    ticket[..4].copy_from_slice(&number.to_be_bytes());
    ticket
}

/// Asks about a ticket, and has the store answer at once.
fn ask(
    register: &mut Register,
    store: &mut Store,
    now: Millis,
    number: u32,
) -> Result<(), Refusal> {
    register.ask(now, (EPOCH + now) / 1000, &ticket(number))?;
    let reply = store.set(ticket(number));
    register.judge(now, 1, now, Ok(store.trailer(now))).of(reply)
}

/// A register and a store that have known each other for long enough, at the time that comes with them.
fn settled(config: Config) -> (Register, Store, Millis) {
    let (mut register, mut store) = (Register::new(0, config), Store::new());
    store.info.replicas = config.replicas;
    assert_eq!(look(&mut register, &mut store, 0), Next::Known);
    assert_eq!(look(&mut register, &mut store, WINDOW), Next::Known);
    (register, store, WINDOW)
}

#[test]
fn a_store_that_knows_the_window_is_asked_and_each_ticket_counts_once() {
    let (mut register, mut store, now) = settled(CONFIG);
    assert_eq!(ask(&mut register, &mut store, now, 1), Ok(()));
    assert_eq!(ask(&mut register, &mut store, now, 1), Err(Refusal::Seen));
    // Another server was shown it.
    store.set(ticket(2));
    assert_eq!(ask(&mut register, &mut store, now, 2), Err(Refusal::Used));
    assert_eq!(ask(&mut register, &mut store, now, 3), Ok(()));
}

#[test]
fn nothing_is_taken_before_the_store_was_known_for_the_window() {
    let (mut register, mut store) = (Register::new(0, CONFIG), Store::new());
    assert_eq!(ask(&mut register, &mut store, 0, 1), Err(Refusal::Unknown));
    for now in (0..WINDOW).step_by(1_000) {
        look(&mut register, &mut store, now);
        assert_eq!(ask(&mut register, &mut store, now, 1), Err(Refusal::Young), "{now}");
    }
    look(&mut register, &mut store, WINDOW);
    assert_eq!(ask(&mut register, &mut store, WINDOW, 1), Ok(()));
    // One that comes later has it from the mark.
    let mut other = Register::new(0, CONFIG);
    look(&mut other, &mut store, WINDOW);
    assert_eq!(ask(&mut other, &mut store, WINDOW, 2), Ok(()));
    assert_eq!(ask(&mut other, &mut store, WINDOW, 1), Err(Refusal::Used));
}

/// All ways in which a store forgets, found by an answer before any look.
#[test]
fn a_store_that_forgot_is_as_an_empty_one() {
    type Forget = fn(&mut Store);
    let forgets: [(&str, Forget); 5] = [
        ("flushed", |store| store.mark = None),
        ("restarted empty", |store| {
            store.mark = None;
            store.info.run_id = "c".into();
        }),
        ("restarted from a file", |store| store.info.run_id = "c".into()),
        ("failed over", |store| store.info.replication_id = "d".into()),
        ("evicted", |store| store.info.evicted += 1),
    ];
    for (how, forget) in forgets {
        let (mut register, mut store, now) = settled(CONFIG);
        assert_eq!(ask(&mut register, &mut store, now, 1), Ok(()), "{how}");
        forget(&mut store);
        if store.mark.is_none() {
            assert_eq!(ask(&mut register, &mut store, now, 2), Err(Refusal::Changed), "{how}");
            assert_eq!(register.look_at(), now, "{how}");
        } else {
            // Another connection, or the next look.
            register.broken(now);
        }
        look(&mut register, &mut store, now + 1_000);
        assert_eq!(ask(&mut register, &mut store, now + 1_000, 3), Err(Refusal::Young), "{how}");
        let later = now + 1_000 + WINDOW;
        look(&mut register, &mut store, later);
        assert_eq!(ask(&mut register, &mut store, later, 3), Ok(()), "{how}");
    }
}

#[test]
fn a_store_that_may_evict_says_so_with_each_answer() {
    let (mut register, mut store, now) = settled(CONFIG);
    assert!(!register.wants_evicted());
    store.info.may_evict = true;
    look(&mut register, &mut store, now);
    assert!(register.wants_evicted());
    assert_eq!(ask(&mut register, &mut store, now, 1), Ok(()));
    store.info.evicted = 1;
    assert_eq!(ask(&mut register, &mut store, now, 2), Err(Refusal::Changed));
    look(&mut register, &mut store, now);
    assert_eq!(ask(&mut register, &mut store, now, 3), Err(Refusal::Young));
    // Who resets the counter hides nothing.
    store.info.evicted = 0;
    assert_eq!(register.looked(now + WINDOW, store.look(now + WINDOW)), {
        Next::Write(Mark::new(&store.info, EPOCH + now + WINDOW, (now + WINDOW + 1).to_be_bytes()))
    });
}

#[test]
fn a_replica_and_a_master_that_has_lost_its_replicas_are_not_asked() {
    let (mut register, mut store, now) = settled(Config { replicas: 1, ..CONFIG });
    assert_eq!(ask(&mut register, &mut store, now, 1), Ok(()));
    store.info.replicas = 0;
    assert_eq!(look(&mut register, &mut store, now), Next::Unfit(Refusal::Replicas));
    assert_eq!(ask(&mut register, &mut store, now, 2), Err(Refusal::Replicas));
    store.info.replicas = 1;
    look(&mut register, &mut store, now + 1_000);
    assert_eq!(ask(&mut register, &mut store, now + 1_000, 2), Ok(()));
    store.info.is_replica = true;
    assert_eq!(look(&mut register, &mut store, now), Next::Unfit(Refusal::Replica));
    assert_eq!(ask(&mut register, &mut store, now, 3), Err(Refusal::Replica));
}

#[test]
fn a_store_that_says_yes_to_everything_is_found_out() {
    let (mut register, mut store, now) = settled(CONFIG);
    store.denies = false;
    assert_eq!(look(&mut register, &mut store, now), Next::Unfit(Refusal::Lies));
    assert_eq!(ask(&mut register, &mut store, now, 1), Err(Refusal::Lies));
}

#[test]
fn clocks_that_do_not_agree_have_early_data_refused() {
    let (mut register, mut store, now) = settled(CONFIG);
    for (off, taken) in [(0, true), (9, true), (-9, true), (12, false), (-12, false)] {
        let unix = ((EPOCH + now) / 1000).saturating_add_signed(off);
        let asked = register.ask(
            now,
            unix,
            &ticket(100 + off.unsigned_abs() as u32 * 2 + u32::from(off < 0)),
        );
        assert_eq!(asked.is_ok(), taken, "{off}: {asked:?}");
    }
    // The store's clock jumps: what it has set to be forgotten later may be forgotten.
    store.ahead += 60_000;
    assert_eq!(ask(&mut register, &mut store, now, 1), Err(Refusal::Clock));
    assert_eq!(register.look_at(), now);
    look(&mut register, &mut store, now);
    let unix = |now| (now + store.ahead) / 1000;
    assert_eq!(register.ask(now, unix(now), &ticket(2)), Err(Refusal::Clock));
    let later = now + WINDOW;
    assert_eq!(register.looked(later, store.look(later)), Next::Known);
    assert_eq!(register.ask(later, unix(later), &ticket(2)), Ok(()));
    // A mark of a time that is to come is none.
    store.ahead -= 3_600_000;
    assert!(matches!(register.looked(later, store.look(later)), Next::Write(_)));
}

/// A server that has not seen the jump hears of it by the mark.
#[test]
fn a_jump_that_one_server_sees_counts_for_all() {
    for jump in [150_000_i64, -60_000] {
        let (mut register, mut store, now) = settled(CONFIG);
        store.ahead = store.ahead.saturating_add_signed(jump);
        let now = now + 1_000;
        look(&mut register, &mut store, now);
        let unix = |now| (now + store.ahead) / 1000;
        // It was not there.
        let mut other = Register::new(0, CONFIG);
        assert_eq!(other.looked(now, store.look(now)), Next::Known, "{jump}");
        assert_eq!(other.ask(now, unix(now), &ticket(1)), Err(Refusal::Young), "{jump}");
        // One mark is enough for all who have seen it.
        assert_eq!(register.looked(now + 900, store.look(now + 900)), Next::Known, "{jump}");
        let over = now + WINDOW;
        assert_eq!(other.looked(over, store.look(over)), Next::Known, "{jump}");
        assert_eq!(other.ask(over, unix(over), &ticket(1)), Ok(()), "{jump}");
        // Set back with the clocks of servers, copies are young again after so long.
        let back = jump.min(0).unsigned_abs();
        for (at, taken) in [(over, back == 0), (over + back, true)] {
            register.looked(at, store.look(at));
            assert_eq!(register.standing(at).is_ok(), taken, "{jump}");
        }
    }
}

#[test]
fn answers_that_come_late_or_not_at_all_are_refusals_and_open_the_breaker() {
    let (mut register, mut store, now) = settled(CONFIG);
    let unix = (EPOCH + now) / 1000;
    for number in 0..5 {
        assert_eq!(register.ask(now, unix, &ticket(number)), Ok(()));
        let late = register.judge(now + 6, 1, now, Ok(store.trailer(now + 6)));
        assert_eq!(late.of(SetReply::Set), Err(Refusal::NoAnswer));
        assert_eq!(late.of(SetReply::Held), Err(Refusal::NoAnswer));
    }
    assert_eq!(register.breaker(now + 6), BreakerState::Open);
    assert_eq!(register.ask(now + 6, unix, &ticket(9)), Err(Refusal::BreakerOpen));
    // What was asked may be set all the same: it is not asked again.
    assert_eq!(register.ask(now + 6, unix, &ticket(0)), Err(Refusal::Seen));
    let trial = register.look_at();
    assert!(trial > now + 6);
    assert_eq!(look(&mut register, &mut store, trial), Next::Known);
    assert_eq!(ask(&mut register, &mut store, trial, 9), Ok(()));
    assert_eq!(register.ask(trial, unix, &ticket(10)), Ok(()));
    let failed = register.judge(trial, 1, trial, Err(Failure::Error));
    assert_eq!(failed.of(SetReply::Set), Err(Refusal::Failed));
}

#[test]
fn a_look_that_is_old_counts_for_nothing() {
    let (mut register, mut store, now) = settled(CONFIG);
    assert_eq!(ask(&mut register, &mut store, now + LOOK_COUNTS, 1), Ok(()));
    assert_eq!(ask(&mut register, &mut store, now + LOOK_COUNTS + 1, 2), Err(Refusal::Unknown));
}

#[test]
fn so_many_questions_wait_and_no_more() {
    let (mut register, store, now) = settled(CONFIG);
    let unix = (EPOCH + now) / 1000;
    for number in 0..MAX_ASKED as u32 {
        assert_eq!(register.ask(now, unix, &ticket(number)), Ok(()));
    }
    assert_eq!(register.ask(now, unix, &ticket(5_000)), Err(Refusal::TooMany));
    register.judge(now, 1, now, Ok(store.trailer(now)));
    assert_eq!(register.ask(now, unix, &ticket(5_000)), Ok(()));
}

/// Where there is no room to remember more, the store knows.
#[test]
fn a_flood_of_tickets_goes_to_the_store() {
    let (mut register, mut store, now) = settled(CONFIG);
    for number in 0..MAX_SEEN as u32 {
        assert_eq!(ask(&mut register, &mut store, now, number), Ok(()));
    }
    assert_eq!(ask(&mut register, &mut store, now, 70_000), Ok(()));
    assert_eq!(ask(&mut register, &mut store, now, 70_000), Err(Refusal::Used));
    assert_eq!(ask(&mut register, &mut store, now, 0), Err(Refusal::Seen));
}
