//! Tests of the grammar.

use quicket_gue::{Tos, Ttl};

use super::words::REFUSED;
use super::*;
use crate::config::{Encap, Families, Kind, PortKind};
use crate::testing::tunnel;

const ENDS: &str = "remote 192.0.2.2 local 192.0.2.1";

fn error(line: &str) -> String {
    parse_line(line).unwrap_err().to_string()
}

#[test]
fn a_line_that_people_know_from_ip_says_the_same_here() {
    let tunnel = tunnel(
        "gre1 type gre remote 192.0.2.2 local 192.0.2.1 ttl 225 tos 0x10 key 1.2.3.4 oseq \
         icsum encap gue encap-sport auto encap-dport 0x15b3 encap-csum encap-remcsum dev eth0",
    );
    assert_eq!((tunnel.name.as_str(), tunnel.kind), ("gre1", Kind::Gre));
    assert_eq!((tunnel.ttl, tunnel.tos), (Ttl::Fixed(225), Tos::Fixed(0x10)));
    assert_eq!((tunnel.okey, tunnel.gre.key), (Some(0x0102_0304), Some(0x0102_0304)));
    assert_eq!((tunnel.oseq, tunnel.gre.sequence), (true, false));
    assert_eq!((tunnel.ocsum, tunnel.gre.checksum), (false, true));
    assert_eq!((tunnel.encap, tunnel.sport, tunnel.dport), (Encap::Gue, None, 5555));
    assert!(tunnel.csum && tunnel.remcsum && tunnel.pmtudisc);
    assert_eq!(tunnel.dev.as_deref(), Some("eth0"));
}

#[test]
fn defaults_are_those_of_ip_where_there_are_any() {
    let ipip = tunnel(&format!("a type ipip {ENDS} encap gue"));
    assert_eq!((ipip.ttl, ipip.tos, ipip.dport), (Ttl::Inherit, Tos::Fixed(0), 6080));
    assert_eq!(ipip.families, Families { v4: true, v6: false });
    let gre = tunnel(&format!("a type gre {ENDS} encap fou"));
    assert_eq!(gre.dport, 4754);
    let v6 = tunnel("a type ip6tnl remote 2001:db8::2 encap fou encap-dport 7");
    assert_eq!((v6.ttl, v6.local), (Ttl::Fixed(64), None));
    assert_eq!(v6.families, Families { v4: true, v6: true });
    let raw = tunnel(&format!("a type ipip {ENDS}"));
    assert_eq!((raw.encap, raw.dport, raw.sport), (Encap::None, 0, None));
    assert_eq!(tunnel(&format!("a type ipip {ENDS} encap gue noencap")), raw);
    for words in ["encap-dport 9", "encap-sport 9", "encap-csum", "noencap-csum", "encap-remcsum"] {
        let error = error(&format!("add a type ipip {ENDS} encap gue {words} encap none"));
        assert!(error.contains("is for encap fou and encap gue"), "{words}: {error}");
    }
    let udp = tunnel(&format!("a type ipip {ENDS} encap gue encap-dport 9 noencap-csum"));
    assert_eq!(change(&udp, &["encap", "none"]).unwrap(), raw, "a change forgets them");
    assert!(change(&udp, &["encap-dport", "8", "encap", "none"]).is_err());
    let hexadecimal = tunnel(&format!("a type ipip {ENDS} encap gue tos 10"));
    assert_eq!(hexadecimal.tos, Tos::Fixed(0x10));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (word, _) in REFUSED {
        let error = error(&format!("add a type gre {ENDS} encap gue {word} 1"));
        assert!(error.contains(&format!("\"{word}\" is not supported")), "{error}");
    }
    for kind in ["erspan", "vti"] {
        assert!(error(&format!("add a type {kind} {ENDS}")).contains("not supported"));
    }
    for words in ["", "encap fou encap-dport 5", "encap gue nopmtudisc"] {
        let error = error(&format!("add a type ipip {ENDS} {words} discovery"));
        assert!(error.contains("\"discovery\""), "{error}");
    }
    assert!(error(&format!("add a type gre {ENDS} ignore-df")).contains("needs \"nopmtudisc\""));
    let limited = error(&format!("add a type ipip {ENDS} encap gue encaplimit 4"));
    assert!(limited.contains("over IPv6"), "{limited}");
    let v6 = "add a type ip6tnl remote ::2 encap gue flowlabel";
    assert!(error(&format!("add a type ipip {ENDS} fwmark inherit")).contains("give a number"));
    assert!(error(&format!("{v6} 100000")).contains("fffff"));
    assert!(error(&format!("add a type sit {ENDS} encap gue fl 1")).contains("over IPv6"));
}

#[test]
fn errors_name_the_word_and_what_would_be_right() {
    let with = |words: &str| error(&format!("add a type ipip {ENDS} encap gue {words}"));
    assert!(with("encap-dprt 5").contains("did you mean \"encap-dport\"?"));
    assert!(with("frobnicate").contains("--help"));
    assert!(with("ttl").contains("ttl N|inherit"));
    assert!(with("ttl 256").contains("\"ttl 256\""));
    assert!(with("tos 3").contains("ECN"));
    assert!(with("key 5").contains("for GRE"));
    assert!(with("encap-dport 0").contains("1 to 65535"));
    assert!(with("encap-dport 65536").contains("65535"));
    assert!(with("ttl 5 nopmtudisc").contains("incompatible"));
    assert!(with("encap-udp6-csum").contains("encap-csum"));
    assert!(with("noencap-csum encap-remcsum").contains("vouches"));
    for words in
        ["encap-dport 9", "encap-sport 9", "encap-csum", "encap-version 1", "encap-remcsum"]
    {
        let error = error(&format!("add a type ipip {ENDS} {words}"));
        assert!(error.contains("for encap"), "{words}: {error}");
    }
    assert!(with("remote 2001:db8::1").contains("IPv4"));
    assert!(with("remote any").contains("remote ADDRESS"));
    assert!(with("allow 10.0.0.0/33").contains("prefix"));
    assert!(error("add a/b type ipip").contains("a/b"));
    assert!(error("add").contains("name"));
    assert!(error("del x").contains("add"));
    assert!(error(&format!("add a type ipip {ENDS} encap fou")).contains("encap-dport"));
}

#[test]
fn ports_are_read_as_ip_fou_reads_them() {
    let port = |line: &str| match parse_line(line).unwrap() {
        Some(Line::Port(port)) => port,
        other => panic!("{other:?}"),
    };
    let gue = port("port add 6080 gue");
    assert_eq!((gue.port, gue.kind, gue.v6), (6080, PortKind::Gue, false));
    let direct = port("port add port 5555 ipproto 4 local 192.0.2.1 peer 192.0.2.2");
    assert_eq!((direct.port, direct.kind), (5555, PortKind::Direct(4)));
    assert_eq!(direct.peer, Some([192, 0, 2, 2].into()));
    assert!(port("port add 7 ipproto gre -6").v6);
    assert!(error("port add gue").contains("number"));
    assert!(error("port add 5").contains("ipproto N"));
    assert!(error("port add 5 ipproto 6").contains("47 (gre)"));
    assert!(error("port add 5 gue ipproto 4").contains("exclude each other"));
    let choice = parse_port_choice(&["5", "-6"]).unwrap();
    assert!(choice.matches(&port("port add 5 gue -6")) && !choice.matches(&port("port add 5 gue")));
    assert!(parse_port_choice(&[]).unwrap().matches(&port("port add 5 gue local 192.0.2.1")));
    assert!(error("port add 5 gue local ::1").contains("-6"));
}

#[test]
fn what_is_shown_makes_the_same_tunnel_again() {
    for words in [
        format!("a type ipip {ENDS} encap gue"),
        format!("a type gre {ENDS} key 5 seq"),
        "a type ip6tnl remote 2001:db8::2 encaplimit 4".to_owned(),
        format!("a type ipip {ENDS} encap gue nopmtudisc encap-version 1 ecn none noencap-csum"),
        format!("a type sit {ENDS} encap fou encap-dport 7 mode ip6ip tos inherit ttl 9"),
        format!("a type gre {ENDS} encap gue key 5 seq icsum encap-remcsum dev eth0"),
        "a type gre remote 192.0.2.2 encap fou ikey 1.2.3.4 oseq ocsum encap-sport 9".to_owned(),
        "a type ip6tnl remote 2001:db8::2 encap gue encaplimit 4 flowlabel 1234a mode ipip6 noencap-udp6-csum"
            .to_owned(),
        format!("a type gretap {ENDS} encap gue key 9"),
        "a type ip6gretap remote 2001:db8::2 encap fou".to_owned(),
        "a type ip6gre remote 2001:db8::2 encap gue allow 10.0.0.0/8 allow ::/0".to_owned(),
        "a type ip6gre remote 2001:db8::2 flowlabel inherit fwmark 0x10 tc inherit".to_owned(),
        "a type sit external to 10.0.0.0/8 dst 192.0.2.1 to ::/0 dst 192.0.2.2 encap gue".to_owned(),
        format!("a type sit {ENDS} encap gue discovery"),
        format!("a type gre {ENDS} nopmtudisc ignore-df"),
        "a type gre external learn 192.0.2.0/24 maxaddress 9 ageing 8 local 192.0.2.1".to_owned(),
    ] {
        let made = tunnel(&words);
        assert_eq!(tunnel(&made.to_string()), made, "{words}: {made}");
    }
    for words in ["7 gue", "7 ipproto 4 local 192.0.2.1", "9 ipproto 47 -6 peer ::1"] {
        let words: Vec<&str> = words.split(' ').collect();
        let port = parse_port(&words).unwrap();
        assert_eq!(port.to_string(), words.join(" "));
    }
}

#[test]
fn a_change_keeps_what_it_does_not_name() {
    let made = tunnel(&format!("a type gre {ENDS} encap gue key 5 seq csum allow 10.0.0.0/8"));
    let changed = change(&made, &["remote", "192.0.2.9", "nokey", "noiseq", "noocsum"]).unwrap();
    assert_eq!((changed.remote, changed.local), ([192, 0, 2, 9].into(), made.local));
    assert_eq!((changed.okey, changed.gre.key), (None, None));
    assert_eq!((changed.oseq, changed.gre.sequence), (true, false));
    assert_eq!((changed.ocsum, changed.gre.checksum), (false, true));
    assert_eq!(changed.allow, made.allow);
    let raw = change(&made, &["encap", "none"]).unwrap();
    assert_eq!((raw.encap, raw.dport), (Encap::None, 0));
    assert_eq!(change(&raw, &["encap", "gue"]).unwrap(), made);
    assert!(change(&made, &["noallow"]).unwrap().allow.is_empty());
    assert_eq!(change(&made, &["local", "any"]).unwrap().local, None);
    assert_eq!(change(&made, &["type", "gre"]).unwrap(), made);
    let error = |words: &[&str]| change(&made, words).unwrap_err().to_string();
    assert!(error(&["type", "ipip"]).contains("does not change"));
    assert!(error(&["remote", "::1"]).contains("IPv4"));
    assert!(error(&["tttl"]).contains("did you mean \"ttl\"?"));
}

#[test]
fn comments_and_empty_lines_say_nothing() {
    assert_eq!(parse_line("  # add x"), Ok(None));
    assert_eq!(parse_line(""), Ok(None));
}

#[test]
fn no_line_makes_it_panic() {
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let names: Vec<&str> = WORDS.iter().flat_map(|word| word.0.iter().copied()).collect();
    let values = ["1", "0x", "inherit", "10.0.0.1", "::1", "", "ö/ü", "4294967296", "gue"];
    for _ in 0..20_000 {
        let mut line = "add a".to_owned();
        for _ in 0..next(12) {
            line.push(' ');
            line.push_str(names[next(names.len())]);
            line.push(' ');
            line.push_str(values[next(values.len())]);
        }
        let _ = parse_line(&line);
    }
}

#[test]
fn many_other_ends_are_a_table_or_learned() {
    let external = "add a type gre external";
    let tunnel = tunnel(
        "a type gre external to 10.1.2.3/16 dst 192.0.2.1 to 2001:db8::/32 dst 192.0.2.2 learn 0.0.0.0/0 ageing 60",
    );
    let all = tunnel.external.as_ref().unwrap();
    let shown: Vec<_> =
        all.table.iter().map(|(to, dst)| format!("{}/{} {dst}", to.address, to.len)).collect();
    assert_eq!(shown, ["10.1.0.0/16 192.0.2.1", "2001:db8::/32 192.0.2.2"]);
    assert_eq!((all.most, all.age, all.learn.len()), (4096, 60, 1));
    let changed = change(&tunnel, &["to", "10.1.0.0/16", "dst", "192.0.2.9"]).unwrap();
    let table = changed.external.unwrap().table;
    assert_eq!(table.len(), 2, "the last one for a prefix counts");
    assert!(table.iter().any(|(_, dst)| *dst == std::net::IpAddr::from([192, 0, 2, 9])));
    let without = change(&tunnel, &["noto"]).unwrap();
    assert!(without.external.unwrap().table.is_empty());
    for (words, why) in [
        ("", "needs other ends"),
        ("remote 192.0.2.1 learn 0.0.0.0/0", "exclude each other"),
        ("to 10.0.0.0/8", "needs \"dst ADDRESS\""),
        ("to 10.0.0.0/8 to 10.0.0.0/9 dst 192.0.2.1", "needs \"dst ADDRESS\""),
        ("dst 192.0.2.1", "belongs behind"),
        ("to 10.0.0.0/8 dst any", "one address"),
        ("to 10.0.0.0/8 dst 2001:db8::1", "of the version"),
        ("learn 2001:db8::/32", "another version"),
        ("learn 0.0.0.0/0 seq", "exclude each other"),
    ] {
        let error = error(&format!("{external} {words}"));
        assert!(error.contains(why), "{words}: {error}");
    }
    assert!(
        error("add a type gretap external learn 0.0.0.0/0").contains("goes by addresses of IP")
    );
    let v6 = error("add a type ip6gre external learn ::/0 flowlabel 5");
    assert!(v6.contains("auto or inherit"), "{v6}");
    assert!(error(&format!("add a type gre {ENDS} learn 0.0.0.0/0")).contains("with \"external\""));
}
