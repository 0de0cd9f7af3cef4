//! Endpoints behind a switch that answers late.

use std::net::SocketAddr;

use quicket::tokio::Endpoint;
use quicket::{EndpointConfig, SwitchConfig};
use quicket_testing::free_port;
use tokio::task::yield_now;

use crate::midway::{in_time, poll_times};
use crate::switch::{self, Switch};

fn programs(name: &str) -> Option<usize> {
    let status = switch::status(name)?;
    let addresses = status["addresses"].as_array().unwrap().iter();
    Some(addresses.map(|address| address["programs"].as_array().unwrap().len()).sum())
}

/// The switch hears of an endpoint that is not wanted any more: that leaves, and gives the address up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_is_not_waited_for_leaves_the_switch() {
    let name = switch::free_name();
    // Programs that connect wait until it runs.
    let daemon = switch::daemon(&name);
    let switch = SwitchConfig::new("app").named(&name).started_by(None);
    let config = EndpointConfig::default().switch(switch);
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    for polls in [0, 1] {
        let bind = Endpoint::bind_with(address, config.clone());
        let ready = poll_times(bind, polls, async |_| panic!("it is dropped")).await;
        assert!(ready.is_none(), "nobody has answered");
    }
    let _switch = Switch::run(daemon, name.clone(), false);
    in_time(async {
        // One that is wanted gets a share of the address all the same.
        let endpoint = Endpoint::bind_with(address, config).await.unwrap();
        while programs(&name) != Some(1) {
            yield_now().await;
        }
        drop(endpoint);
        while programs(&name) != Some(0) || std::net::UdpSocket::bind(address).is_err() {
            yield_now().await;
        }
    })
    .await;
}
