//! Logs of what connections do, in the qlog format (draft-ietf-quic-qlog-main-schema and
//! draft-ietf-quic-qlog-quic-events), one `.sqlog` file for each, as qvis reads them.
