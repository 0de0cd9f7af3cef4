//! PATH_RESPONSE frames that wait to be sent (RFC 9000, Section 8.2.2).

/// Challenges remembered per path. A peer has no use for more: only the newest tell it anything,
/// and a flood of challenges must cost nothing (RFC 9000, Section 21.9).
pub(crate) const MAX_RESPONSES: usize = 4;

/// The data of received PATH_CHALLENGE frames, to be echoed on the same path
/// (RFC 9000, Section 8.2.2). Responses are not repeated when lost: the peer challenges again
/// (RFC 9000, Section 13.3).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathResponses {
    /// Oldest first; the empty places are at the end.
    queue: [Option<[u8; 8]>; MAX_RESPONSES],
}

impl PathResponses {
    /// A PATH_CHALLENGE arrived. The oldest is forgotten when there are too many.
    pub(crate) fn push(&mut self, data: [u8; 8]) {
        if self.queue.iter().all(Option::is_some) {
            self.pop();
        }
        if let Some(free) = self.queue.iter_mut().find(|r| r.is_none()) {
            *free = Some(data);
        }
    }

    /// The data of the next response; each is given once (RFC 9000, Section 8.2.2: MUST NOT send
    /// more than one PATH_RESPONSE in response to one PATH_CHALLENGE).
    pub(crate) fn pop(&mut self) -> Option<[u8; 8]> {
        let first = self.queue.first_mut()?.take();
        self.queue.rotate_left(1);
        first
    }

    /// True if a response waits.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.queue.first().is_some_and(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_come_in_the_order_of_the_challenges_and_once() {
        let mut responses = PathResponses::default();
        assert!(!responses.has_pending() && responses.pop().is_none());
        responses.push([1; 8]);
        responses.push([2; 8]);
        assert!(responses.has_pending());
        assert_eq!(responses.pop(), Some([1; 8]));
        assert_eq!(responses.pop(), Some([2; 8]));
        assert_eq!(responses.pop(), None);
    }

    /// RFC 9000, Section 21.9.
    #[test]
    fn a_flood_of_challenges_leaves_only_the_newest() {
        let mut responses = PathResponses::default();
        for n in 0..100 {
            responses.push([n; 8]);
        }
        for n in 96..100 {
            assert_eq!(responses.pop(), Some([n; 8]));
        }
        assert_eq!(responses.pop(), None);
    }
}
