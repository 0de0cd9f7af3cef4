#[path = "../../packets/tests/common/switch.rs"]
#[allow(dead_code, unreachable_pub, reason = "tests elsewhere use the rest")]
mod switch;

use quicket_packets::{Layout, Memory, halves};

use crate::out::Out;
use crate::segment::{Ends, Reply};
use crate::{Stack, TcpListener};

/// As long as something is on its way, no address is given back, and the switch has it.
#[test]
fn an_address_that_was_just_left_can_be_listened_at() {
    let switch = switch::Switch::start();
    let stack = Stack::open(&switch.path).unwrap();
    let any = ([127, 0, 0, 1], 0).into();
    let listener = TcpListener::bind(&stack, any).unwrap();
    let address = listener.local_addr().unwrap();
    {
        // A switch that takes nothing.
        let layout = Layout::new(16, 16, 2048).unwrap();
        let mut out = Out::new(halves(Memory::create(layout).unwrap()).0);
        let ends = Ends { local: address, remote: address };
        out.reply(&ends, Reply::Reset { sequence: 0, acknowledgment: None });
        stack.shared().lock().out = out;
    }
    for _ in 0..2 {
        drop(TcpListener::bind(&stack, any).unwrap());
    }
    drop(listener);
    let again = TcpListener::bind(&stack, address).unwrap();
    assert_eq!(again.local_addr().unwrap(), address);
    assert!(TcpListener::bind(&stack, address).is_err());
}
