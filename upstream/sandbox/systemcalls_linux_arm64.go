package sandbox

// modeCallsHere and watchCallsHere are empty: arm64 has the newer calls alone.
var modeCallsHere, watchCallsHere []uint32
