//! What a reader must know to judge the figures of a report.

use super::Settings;
use super::report::Report;

impl Report {
    /// What a reader must know to judge the figures.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Settings { cipher, udp_payload, runs, bulk_bytes, quick, .. } = self.settings;
        let Settings { idle_connections, gateway_connections, .. } = self.settings;
        let mut notes = Vec::new();
        if quick {
            notes.push(
                "Quick run: it shows that everything works; the figures do not count.".to_owned(),
            );
        }
        let (discarded, disturbed) = self.disturbances();
        if !quick {
            notes.push(format!(
                "{discarded} measurements were thrown away and made again, because other programs \
                 (or the host of a virtual machine) had more than 5 % of a core meanwhile."
            ));
        }
        if disturbed > 0 {
            notes.push(format!(
                "{disturbed} measurements were disturbed by other load again and again and count \
                 nevertheless: make the machine quiet and repeat this run."
            ));
        }
        notes.extend([
            format!(
                "{}, X25519, ECDSA P-256 certificate verified by the client; UDP payloads of \
                 {udp_payload} bytes without path MTU discovery, or of 8,972 bytes found by it. \
                 TCP chooses its segments itself: the loopback device has an MTU of 65,536 bytes. \
                 CUBIC, also for TCP, unless a row says otherwise; segmentation and receive \
                 offload as the kernel has them.",
                cipher.name()
            ),
            format!(
                "Server on core 0, client on core 1 (row of workers: both on all), new processes for each measurement, \
                 implementations taking turns; median of {runs}, smallest and largest beside it."
            ),
            format!(
                "Bulk: {} MiB after {} MiB of warm-up. CPU time is that of the whole process, \
                 kernel included, as far as the kernel accounts it to the process.",
                bulk_bytes >> 20,
                bulk_bytes >> 24
            ),
            "Requests go on a new stream each; over TCP on one connection. A handshake counts \
             once the client has completed it; the connection is then closed. Session tickets only \
             where connections are resumed; after 0-RTT, the rate has a second request in it, which \
             the next ticket comes with."
                .to_owned(),
            format!(
                "Memory: growth of a process's resident memory over {idle_connections} \
                 connections, two seconds after the last was made; what the kernel keeps for \
                 TCP connections is not in it."
            ),
            format!(
                "Files over HTTP: programs as users start them, in memory, Quicket and Caddy with \
                 what path MTU discovery finds. One file of {} MiB and as many of 1 KiB as fit in a \
                 second, each fetched by a program of its own, timed from its start to its end; \
                 what arrived is compared with what was served.",
                bulk_bytes >> 20
            ),
            "Tunnel: one worker on each core, TCP in plain text at both ends on the same two cores; \
             no tunnel can be faster than tcp, which is the bare pair. 200 connections ask for a \
             byte each, again and again: as IPIP, or as GRE or SIT, which carries IPv6."
                .to_owned(),
            "Balancer: one worker on core 0 of the left namespace; datagrams of 200 bytes (first \
             packets 1,200) come from core 1 of the right one, and their receipt there is not in \
             the figures. The limit: two copies of each datagram by the kernel, and the calls that \
             are listed. Programs in the kernel get one packet a call, of all flows in turn (10,000 \
             at least), and are compared with each other alone."
                .to_owned(),
            format!(
                "Gateway: one program asks over each version of HTTP, with as many requests under \
                 way: 1 KiB on 8 connections with 8 requests each (over HTTP/1.1 on 64 connections), \
                 10 MB on 4 connections. The gateway is alone on core 0; who asks, and the server \
                 behind the gateway, which is this program's own over plain HTTP/1.1, are on core 1. \
                 CPU is that of the gateway's process alone. One answer is compared byte by byte; \
                 of all, status and length. QUIC has the packets that path MTU discovery finds. \
                 TSO off: tcp-segmentation-offload of the gateway's device. Memory: growth of \
                 resident memory over {gateway_connections} connections with one request each, \
                 three seconds after the last."
            ),
            "Switch for packets: rates of a switch in shared memory, not of a network card. Frames of UDP, \
             each with a number, a check and a right checksum, which the receiver looks at. Within a \
             process: one thread has all ports and the switch. Between two processes: a core each, each \
             port sends to the next one; frames of IPv6 have 82 octets at least. To and from the card: all ports and the switch share core 0, or with two cores the \
             card and the switch core 1; the card is a port on core 1 that moves no more than 10 Gbit/s of Ethernet would carry, 84 octets \
             of the wire for a frame of 64: 14.88 Mpps at most; stacks offer it 2 % more, which is lost. By devices: a pair of virtual ones, where the kernel copies each \
             frame; who sends is on one core, and who receives or forwards on the other one. Bare is one socket of AF_XDP: \
             a program hands it all frames, whose headers are read in place. The switch is a thread of the port's process there; it checks whose each frame is, \
             and copies it. XDP program: the least of seven runs (BPF_PROG_RUN) for a frame to a port."
                .to_owned(),
            "Fetches: a connection for each of them, as many at once as is said, and as many threads at both ends; a server and a generator of load that are the same over TCP \
             of the system and in user space, and nginx of Debian (where it is there), which has a master and a worker for each core, all of them on all cores. The system's TCP, and the stack that has the \
             device (AF_XDP, the client on the system's TCP), are between two network namespaces; the stacks in memory are \
             at one switch. Without offload: segmentation and receive offload of both devices are off, of the system as of the stack; \
             nginx and those with offload have the devices as they are made. Length and last octet \
             of each answer are compared. CPU is that of the whole machine."
                .to_owned(),
            "Checked before measuring: every byte of an untimed transfer in both directions, \
             refusal of a client with another cipher suite, affinity as the kernel tells it, mean \
             UDP payload."
                .to_owned(),
        ]);
        notes
    }
}
