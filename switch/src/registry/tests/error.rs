//! What is refused.

use super::*;

#[test]
fn what_can_never_be_is_refused() {
    let mut registry = registry();
    let mut refused = |change: fn(&mut Registration)| {
        let mut new = asks("a", names(&["a"], &[]));
        change(&mut new);
        registry.register(at(0), new).unwrap_err()
    };
    assert_eq!(refused(|new| new.workers = 0), RegisterError::Workers(0));
    assert_eq!(refused(|new| new.workers = 257), RegisterError::Workers(257));
    assert_eq!(refused(|new| new.program.clear()), RegisterError::ProgramName(0));
    let no_port = |new: &mut Registration| {
        new.address = ListenAddress::new("192.0.2.1:0".parse().unwrap(), false);
    };
    assert_eq!(refused(no_port), RegisterError::NoPort);
    active(&mut registry, asks("a", names(&["a"], &[])));
    let mut wild = asks("b", names(&["b"], &[]));
    wild.address = ListenAddress::new("[::]:443".parse().unwrap(), false);
    let error = registry.register(at(0), wild).unwrap_err();
    assert!(matches!(error, RegisterError::AddressInUse(_)) && error.is_in_use());
    for port in 1..MAX_ADDRESSES {
        let address = format!("192.0.2.2:{port}").parse().unwrap();
        let address = ListenAddress::new(address, false);
        registry
            .register(at(0), Registration { address, ..asks("a", names(&["a"], &[])) })
            .unwrap();
    }
    let address = ListenAddress::new("192.0.2.3:1".parse().unwrap(), false);
    let new = Registration { address, ..asks("a", names(&["a"], &[])) };
    assert_eq!(registry.register(at(0), new), Err(RegisterError::TooManyAddresses));
}
