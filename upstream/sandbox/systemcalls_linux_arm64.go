package sandbox

// modeCallsHere and watchCallsHere are empty: arm64 has only the newer calls.
var modeCallsHere, watchCallsHere []uint32
