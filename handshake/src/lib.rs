//! TLS 1.3 and packet protection behind the traits of `quicket-engine`.
