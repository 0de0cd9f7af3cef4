//! How much content an answer has, by what it says and by what comes (RFC 9114, Section 4.1.2).

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Response, StatusCode};

/// What is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length(Option<u64>);

impl Length {
    /// Of an answer; none if its Content-Length is none.
    pub(crate) fn of(head: &Response<()>, is_head: bool) -> Option<Self> {
        let announced = content_length(head.headers())?;
        // These say what there would be, and have no content (RFC 9110, Section 8.6).
        let is_about_another =
            is_head || matches!(head.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        Some(Self(announced.filter(|_| !is_about_another)))
    }

    /// So many bytes have come, or the end. Fails if that is not what was said.
    pub(crate) fn take(&mut self, bytes: Option<usize>) -> Result<(), &'static str> {
        match (&mut self.0, bytes) {
            (None, _) | (Some(0), None) => Ok(()),
            (Some(_), None) => Err("it ends before its Content-Length"),
            (Some(left), Some(bytes)) => {
                *left =
                    left.checked_sub(bytes as u64).ok_or("it goes on beyond its Content-Length")?;
                Ok(())
            }
        }
    }
}

/// The length that fields tell, none of which may differ (RFC 9110, Section 8.6).
fn content_length(headers: &HeaderMap) -> Option<Option<u64>> {
    let mut told = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        for part in value.to_str().ok()?.split(',') {
            let digits = part.trim_matches([' ', '\t']);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let length = digits.parse().ok()?;
            if told.is_some_and(|told: u64| told != length) {
                return None;
            }
            told = Some(length);
        }
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, values: &[&str], is_head: bool) -> Option<Length> {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::from_u16(status).unwrap();
        for value in values {
            head.headers_mut().append(CONTENT_LENGTH, value.parse().unwrap());
        }
        Length::of(&head, is_head)
    }

    #[test]
    fn content_is_as_long_as_it_says() {
        let mut length = of(200, &["5", "5, 5"], false).unwrap();
        assert_eq!(length.take(Some(3)), Ok(()));
        assert!(length.take(None).is_err());
        assert!(length.take(Some(3)).is_err());
        assert_eq!((length.take(Some(2)), length.take(None)), (Ok(()), Ok(())));
        for (status, values, is_head) in
            [(200, &[][..], false), (200, &["5"], true), (204, &["5"], false), (304, &["5"], false)]
        {
            assert_eq!(of(status, values, is_head), Some(Length(None)), "{status}");
        }
        assert_eq!(Length(None).take(None), Ok(()));
        for wrong in [&["5", "6"][..], &["+5"], &[""], &["5,"], &["18446744073709551616"], &["a"]] {
            assert_eq!(of(200, wrong, false), None, "{wrong:?}");
        }
    }
}
