//! Whether a device is still the one that was attached.

use super::Device;

impl Device {
    /// Whether it has gone, or has been in another network namespace: whatever has its number or name now is not what was attached.
    pub(in super::super) fn has_gone(&mut self) -> bool {
        if !self.has_gone {
            let of = self.hook.as_ref().and_then(|hook| hook.interface().ok());
            // What the system does not say is as before.
            let is_elsewhere = of.is_some_and(|index| index != Some(self.link.index));
            self.has_gone =
                is_elsewhere || self.queues.iter().any(|queue| queue.socket.has_lost_its_device());
        }
        self.has_gone
    }
}
