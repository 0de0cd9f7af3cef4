//! The states of a stream's two halves, to be read beside Figures 2 and 3 of RFC 9000.

/// States of the sending half (RFC 9000, Section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// "Ready": nothing was sent.
    Ready,
    /// "Send": data was sent.
    Send,
    /// "Data Sent": all data and the end were sent.
    DataSent,
    /// "Reset Sent": given up.
    ResetSent,
    /// "Data Recvd": the peer has all.
    DataRecvd,
    /// "Reset Recvd": the peer knows that it was given up.
    ResetRecvd,
}

/// What moves the sending half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStep {
    /// A STREAM or STREAM_DATA_BLOCKED frame was sent.
    SendData,
    /// A STREAM frame with FIN was sent, and all data before it.
    SendFin,
    /// RESET_STREAM is sent, by the application's wish or for the peer's STOP_SENDING.
    SendReset,
    /// Acknowledgments for all data and the FIN have arrived.
    RecvAllAcks,
    /// The acknowledgment of RESET_STREAM has arrived.
    RecvResetAck,
}

impl SendState {
    /// The state after `step`. A step that the figure does not have in this state changes
    /// nothing.
    pub(crate) const fn after(self, step: SendStep) -> Self {
        match (self, step) {
            (Self::Ready, SendStep::SendData) => Self::Send,
            (Self::Ready | Self::Send, SendStep::SendFin) => Self::DataSent,
            (Self::Ready | Self::Send | Self::DataSent, SendStep::SendReset) => Self::ResetSent,
            (Self::DataSent, SendStep::RecvAllAcks) => Self::DataRecvd,
            (Self::ResetSent, SendStep::RecvResetAck) => Self::ResetRecvd,
            (state, _) => state,
        }
    }

    /// True in the final states: nothing more is sent and no acknowledgment awaited.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::DataRecvd | Self::ResetRecvd)
    }

    /// True while STREAM frames may be sent, be it for the first time or again.
    pub(crate) const fn sends_data(self) -> bool {
        matches!(self, Self::Ready | Self::Send | Self::DataSent)
    }
}

/// States of the receiving half (RFC 9000, Section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvState {
    /// "Recv": data may come.
    Recv,
    /// "Size Known": the end came, and data is missing.
    SizeKnown,
    /// "Data Recvd": all data is here.
    DataRecvd,
    /// "Reset Recvd": the peer gave up.
    ResetRecvd,
    /// "Data Read": the application has read all.
    DataRead,
    /// "Reset Read": the application knows of the reset.
    ResetRead,
}

/// What moves the receiving half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecvStep {
    /// A STREAM frame with FIN arrived.
    RecvFin,
    /// All data up to the final size is here.
    RecvAllData,
    /// RESET_STREAM arrived. Once all data is here it is ignored, as Section 3.2 permits.
    RecvReset,
    /// The application has read all data.
    ReadAllData,
    /// The application has learnt of the reset.
    ReadReset,
    /// The final size is known of a stream whose data nobody wants since STOP_SENDING: as if all
    /// had come and were read.
    Discard,
}

impl RecvState {
    /// The state after `step`. A step that the figure does not have in this state changes
    /// nothing.
    pub(crate) const fn after(self, step: RecvStep) -> Self {
        match (self, step) {
            (Self::Recv, RecvStep::RecvFin) => Self::SizeKnown,
            (Self::SizeKnown, RecvStep::RecvAllData) => Self::DataRecvd,
            (Self::Recv | Self::SizeKnown, RecvStep::RecvReset) => Self::ResetRecvd,
            (Self::DataRecvd, RecvStep::ReadAllData) => Self::DataRead,
            (Self::ResetRecvd, RecvStep::ReadReset) => Self::ResetRead,
            (Self::SizeKnown | Self::DataRecvd, RecvStep::Discard) => Self::DataRead,
            (Self::ResetRecvd, RecvStep::Discard) => Self::ResetRead,
            (state, _) => state,
        }
    }

    /// True in the final states: the application knows all that there is to know.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::DataRead | Self::ResetRead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: [SendState; 6] = [
        SendState::Ready,
        SendState::Send,
        SendState::DataSent,
        SendState::ResetSent,
        SendState::DataRecvd,
        SendState::ResetRecvd,
    ];
    const RECV: [RecvState; 6] = [
        RecvState::Recv,
        RecvState::SizeKnown,
        RecvState::DataRecvd,
        RecvState::ResetRecvd,
        RecvState::DataRead,
        RecvState::ResetRead,
    ];

    #[test]
    fn sending_half_follows_figure_2() {
        use SendState::*;
        let rows = [
            (SendStep::SendData, [Send, Send, DataSent, ResetSent, DataRecvd, ResetRecvd]),
            (SendStep::SendFin, [DataSent, DataSent, DataSent, ResetSent, DataRecvd, ResetRecvd]),
            (
                SendStep::SendReset,
                [ResetSent, ResetSent, ResetSent, ResetSent, DataRecvd, ResetRecvd],
            ),
            (SendStep::RecvAllAcks, [Ready, Send, DataRecvd, ResetSent, DataRecvd, ResetRecvd]),
            (SendStep::RecvResetAck, [Ready, Send, DataSent, ResetRecvd, DataRecvd, ResetRecvd]),
        ];
        for (step, row) in rows {
            assert_eq!(SEND.map(|state| state.after(step)), row, "{step:?}");
        }
    }

    #[test]
    fn receiving_half_follows_figure_3() {
        use RecvState::*;
        let rows = [
            (RecvStep::RecvFin, [SizeKnown, SizeKnown, DataRecvd, ResetRecvd, DataRead, ResetRead]),
            (RecvStep::RecvAllData, [Recv, DataRecvd, DataRecvd, ResetRecvd, DataRead, ResetRead]),
            (
                RecvStep::RecvReset,
                [ResetRecvd, ResetRecvd, DataRecvd, ResetRecvd, DataRead, ResetRead],
            ),
            (RecvStep::ReadAllData, [Recv, SizeKnown, DataRead, ResetRecvd, DataRead, ResetRead]),
            (RecvStep::ReadReset, [Recv, SizeKnown, DataRecvd, ResetRead, DataRead, ResetRead]),
            (RecvStep::Discard, [Recv, DataRead, DataRead, ResetRead, DataRead, ResetRead]),
        ];
        for (step, row) in rows {
            assert_eq!(RECV.map(|state| state.after(step)), row, "{step:?}");
        }
    }
}
