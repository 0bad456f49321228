"""The families of systems, as the runtime decodes them: configs of networks and searches, and native decoders."""
