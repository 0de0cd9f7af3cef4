use super::*;

#[test]
fn a_contender_has_one_name_everywhere() {
    for contender in Contender::ALL {
        assert_eq!(contender.name().parse(), Ok(contender));
        let json = serde_json::to_string(&contender).unwrap();
        assert_eq!(json, format!("{:?}", contender.name()));
    }
}

#[test]
fn rows_without_encryption_are_between_tcp_and_quicket() {
    for contender in Contender::ALL {
        let plain =
            matches!(contender, Contender::Tcp | Contender::Quicket | Contender::QuicketTokio);
        assert_eq!(contender.takes_part(Row::UploadPlain), plain, "{contender}");
        let others = contender.is_of_files()
            || contender.is_of_packets()
            || contender.gateway().is_some()
            || contender == Contender::QuicketPort;
        let encrypted = contender != Contender::Tcp && !others;
        assert_eq!(contender.takes_part(Row::Upload), encrypted, "{contender}");
    }
}

#[test]
fn who_carries_packets_is_measured_in_rows_of_its_own() {
    for contender in Contender::ALL.into_iter().filter(|one| one.is_of_packets()) {
        let rows: Vec<Row> =
            Row::ALL.into_iter().filter(|row| contender.takes_part(*row)).collect();
        let own = match contender {
            Contender::Forwarder | Contender::XdpForwarder | Contender::QuicketXdp => Row::Balance,
            _ => Row::Tunnel,
        };
        assert_eq!(rows, [own], "{contender}");
    }
    for row in [Row::Balance, Row::Tunnel] {
        assert!(Contender::Quicket.takes_part(row) && !Contender::Quinn.takes_part(row));
    }
}

#[test]
fn gateways_have_a_row_of_their_own_and_are_compared_by_version() {
    for contender in Contender::ALL {
        let rows = Row::ALL.into_iter().filter(|row| contender.takes_part(*row));
        let rows: Vec<Row> = rows.collect();
        assert_eq!(rows == [Row::Gateway], contender.gateway().is_some(), "{contender}");
    }
    let compared = |own: Contender| {
        let others = Contender::ALL.into_iter().filter(move |other| own.is_compared_with(*other));
        others.collect::<Vec<_>>()
    };
    let three = [Contender::NginxH2, Contender::CaddyH3, Contender::GatewayH2];
    assert_eq!(compared(Contender::GatewayH3), three);
    assert_eq!(compared(Contender::GatewayH2), [Contender::NginxH2, Contender::CaddyH2]);
    assert!(!compared(Contender::Quicket).contains(&Contender::CaddyH3));
    assert!(compared(Contender::CaddyH3).is_empty());
}

#[test]
fn files_are_between_those_who_have_programs_for_them() {
    let fetching = Contender::ALL.into_iter().filter(|one| one.takes_part(Row::Http));
    let fetching: Vec<Contender> = fetching.collect();
    assert_eq!(fetching, [Contender::Nginx, Contender::Caddy, Contender::Quicket]);
}
