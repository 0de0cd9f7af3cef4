//! Questions that a program has asked, by their numbers, and whom the answers are for.

use std::collections::BTreeMap;

use crate::protocol::Reply;

/// Tickets that the switch is asked about at a time. It answers at once; more are not asked about.
pub const MAX_STRIKES_ASKED: usize = 1024;

/// Hears whether a ticket was used for the first time.
pub(super) type Struck = Box<dyn FnOnce(bool) + Send>;

/// What was asked and not answered yet.
#[derive(Default)]
pub(super) struct Questions {
    next: u32,
    /// Of those who wait, with the answers that they have not taken yet.
    asked: BTreeMap<u32, Option<Reply>>,
    strikes: BTreeMap<u32, Struck>,
}

impl Questions {
    fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// A question of who waits.
    pub(super) fn ask(&mut self) -> u32 {
        let number = self.number();
        self.asked.insert(number, None);
        number
    }

    /// A question about a ticket; gives it back if there are too many.
    pub(super) fn ask_of_ticket(&mut self, struck: Struck) -> Result<u32, Struck> {
        if self.strikes.len() >= MAX_STRIKES_ASKED {
            return Err(struck);
        }
        let number = self.number();
        self.strikes.insert(number, struck);
        Ok(number)
    }

    /// The answer to a question, if it has come.
    pub(super) fn take(&mut self, number: u32) -> Option<Reply> {
        let reply = self.asked.get_mut(&number)?.take()?;
        self.asked.remove(&number);
        Some(reply)
    }

    /// Nobody waits for the answer any more: if it still comes it is not another's.
    pub(super) fn forget(&mut self, number: u32) {
        self.asked.remove(&number);
    }

    /// The question about a ticket, if it was asked and not answered.
    pub(super) fn take_struck(&mut self, number: u32) -> Option<Struck> {
        self.strikes.remove(&number)
    }

    /// All of those.
    pub(super) fn take_all_struck(&mut self) -> impl Iterator<Item = Struck> + use<> {
        std::mem::take(&mut self.strikes).into_values()
    }

    /// An answer has come. Returns who is to hear it, if he does not wait.
    #[must_use]
    pub(super) fn answer(&mut self, number: u32, reply: Reply) -> Option<(Struck, bool)> {
        if let Some(place) = self.asked.get_mut(&number) {
            *place = Some(reply);
            return None;
        }
        let struck = self.strikes.remove(&number)?;
        Some((struck, reply == Reply::Struck(true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_late_is_nobodys() {
        let mut questions = Questions::default();
        let first = questions.ask();
        questions.forget(first);
        let second = questions.ask();
        assert!(questions.answer(first, Reply::Bind { patience: 0 }).is_none());
        assert_eq!(questions.take(second), None);
        assert!(questions.answer(second, Reply::Done).is_none());
        assert_eq!(questions.take(second), Some(Reply::Done));
        assert_eq!(questions.take(second), None);
    }

    #[test]
    fn answers_about_tickets_go_to_who_asked_and_there_are_so_many() {
        let mut questions = Questions::default();
        let (said, heard) = std::sync::mpsc::channel();
        let numbers: Vec<_> = (0..MAX_STRIKES_ASKED)
            .map(|which| {
                let said = said.clone();
                let struck = Box::new(move |first| said.send((which, first)).unwrap());
                questions.ask_of_ticket(struck).ok().unwrap()
            })
            .collect();
        assert!(questions.ask_of_ticket(Box::new(|_| ())).is_err());
        for (number, reply) in
            [(7, Reply::Struck(true)), (9, Reply::Struck(false)), (4, Reply::Done)]
        {
            let (struck, first) = questions.answer(numbers[number], reply).unwrap();
            struck(first);
        }
        let heard: Vec<_> = heard.try_iter().collect();
        assert_eq!(heard, [(7, true), (9, false), (4, false)]);
        assert!(questions.answer(numbers[7], Reply::Struck(true)).is_none());
        assert_eq!(questions.take_all_struck().count(), MAX_STRIKES_ASKED - 3);
    }
}
