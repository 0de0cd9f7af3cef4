//! What can be set on a link, as plain data.

use quicket_engine::time::Duration;

use super::delay::Reorder;
use super::ecn::EcnTreatment;
use super::loss::{BurstLoss, PacketList};
use crate::units::{Probability, QueueLength};

/// How one direction of a path treats packets. The default passes everything at once, unharmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Arrival varies by up to this much either way; order is kept.
    pub jitter: Duration,
    /// Bits per second, counted over IP packets; `None` is unlimited.
    pub rate: Option<u64>,
    /// What waits at most for the bottleneck of `rate`; the rest is dropped at the tail.
    pub queue: Option<QueueLength>,
    /// Independent loss.
    pub loss: Probability,
    /// Most packets in a row that independent loss takes; `None` is unlimited.
    pub loss_run: Option<u64>,
    /// Loss in bursts.
    pub burst_loss: Option<BurstLoss>,
    /// Packets to drop by number.
    pub drop: PacketList,
    /// Packets in which bits flip.
    pub corrupt: Probability,
    /// Most packets in a row in which bits flip; `None` is unlimited.
    pub corrupt_run: Option<u64>,
    /// Packets that are overtaken.
    pub reorder: Option<Reorder>,
    /// Packets that arrive twice.
    pub duplicate: Probability,
    /// Longest IP packet that passes, in bytes; `None` is unlimited. Longer ones vanish.
    pub mtu: Option<u32>,
    /// ECT packets marked CE regardless of the queue.
    pub mark: Probability,
    /// ECT packets are marked CE when they make the queue longer than this.
    pub mark_above: Option<QueueLength>,
    /// What happens to the ECN field apart from marking.
    pub ecn: EcnTreatment,
}

/// One setting of a link, to be applied at the start or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// See [`LinkSettings::delay`].
    Delay(Duration),
    /// See [`LinkSettings::jitter`].
    Jitter(Duration),
    /// See [`LinkSettings::rate`].
    Rate(Option<u64>),
    /// See [`LinkSettings::queue`].
    Queue(Option<QueueLength>),
    /// See [`LinkSettings::loss`].
    Loss(Probability),
    /// See [`LinkSettings::loss_run`].
    LossRun(Option<u64>),
    /// See [`LinkSettings::burst_loss`].
    BurstLoss(Option<BurstLoss>),
    /// See [`LinkSettings::drop`].
    Drop(PacketList),
    /// See [`LinkSettings::corrupt`].
    Corrupt(Probability),
    /// See [`LinkSettings::corrupt_run`].
    CorruptRun(Option<u64>),
    /// See [`LinkSettings::reorder`].
    Reorder(Option<Reorder>),
    /// See [`LinkSettings::duplicate`].
    Duplicate(Probability),
    /// See [`LinkSettings::mtu`].
    Mtu(Option<u32>),
    /// See [`LinkSettings::mark`].
    Mark(Probability),
    /// See [`LinkSettings::mark_above`].
    MarkAbove(Option<QueueLength>),
    /// See [`LinkSettings::ecn`].
    Ecn(EcnTreatment),
}

impl LinkSettings {
    /// Takes over one setting.
    pub fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Delay(delay) => self.delay = delay,
            Setting::Jitter(jitter) => self.jitter = jitter,
            Setting::Rate(rate) => self.rate = rate,
            Setting::Queue(queue) => self.queue = queue,
            Setting::Loss(loss) => self.loss = loss,
            Setting::LossRun(packets) => self.loss_run = packets,
            Setting::BurstLoss(loss) => self.burst_loss = loss,
            Setting::Drop(list) => self.drop = list,
            Setting::Corrupt(probability) => self.corrupt = probability,
            Setting::CorruptRun(packets) => self.corrupt_run = packets,
            Setting::Reorder(reorder) => self.reorder = reorder,
            Setting::Duplicate(probability) => self.duplicate = probability,
            Setting::Mtu(mtu) => self.mtu = mtu,
            Setting::Mark(probability) => self.mark = probability,
            Setting::MarkAbove(length) => self.mark_above = length,
            Setting::Ecn(treatment) => self.ecn = treatment,
        }
    }

    /// All settings one by one, in the order in which they are printed.
    pub fn list(&self) -> Vec<Setting> {
        vec![
            Setting::Delay(self.delay),
            Setting::Jitter(self.jitter),
            Setting::Rate(self.rate),
            Setting::Queue(self.queue),
            Setting::Loss(self.loss),
            Setting::LossRun(self.loss_run),
            Setting::BurstLoss(self.burst_loss),
            Setting::Drop(self.drop.clone()),
            Setting::Corrupt(self.corrupt),
            Setting::CorruptRun(self.corrupt_run),
            Setting::Reorder(self.reorder),
            Setting::Duplicate(self.duplicate),
            Setting::Mtu(self.mtu),
            Setting::Mark(self.mark),
            Setting::MarkAbove(self.mark_above),
            Setting::Ecn(self.ecn),
        ]
    }
}
