//! Listeners that processes have from one another.

use super::*;

/// A process that has its listener from another one over fork(2) shares what that serves.
#[test]
fn a_family_shares_its_names_with_nobody_else() {
    let mut registry = registry();
    let of = |family| Registration { family, ..asks("web", names(&["h3"], &[])) };
    let parent = active(&mut registry, of(Some([1; 16])));
    for stranger in [of(None), of(Some([2; 16]))] {
        assert!(registry.register(at(0), stranger).unwrap_err().is_in_use());
    }
    let other_names =
        Registration { family: Some([1; 16]), ..asks("web", names(&["h3", "x"], &[])) };
    assert!(registry.register(at(0), other_names).unwrap_err().is_in_use());
    let other_user = Registration { uid: 7, ..of(Some([1; 16])) };
    assert!(registry.register(at(0), other_user).unwrap_err().is_in_use());
    let child = active(&mut registry, of(Some([1; 16])));
    assert_eq!(registry.phase(parent), Some(Phase::Active), "nobody is replaced");
    let address = parent.address();
    assert_eq!(registry.members(address, [1; 16]), [parent, child]);
    // One that joins first and serves then, as programs do.
    let late = registry.join(at(0), of(Some([1; 16]))).unwrap().listener;
    registry.serve(at(0), late, names(&["h3"], &[]), false, false).unwrap();
    // Who serves no more is a member no more, and one that serves again shares as before.
    registry.drain(child, None).unwrap();
    assert_eq!(registry.members(address, [1; 16]), [parent, late]);
    assert_eq!(registry.member_of(address, [1; 16]).unwrap().names, names(&["h3"], &[]));
    assert!(registry.member_of(address, [2; 16]).is_none());
    registry.remove(at(0), parent);
    registry.remove(at(0), late);
    assert!(registry.member_of(address, [1; 16]).is_none());
}
