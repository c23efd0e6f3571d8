package eval

import (
	"bytes"
	"math"
	"os"
	runtimemetrics "runtime/metrics"
	"strconv"
)

// residentMB returns the memory of this process in MB (10^6 bytes): what the system reports, else what the runtime
// holds; nil if unknown.
func residentMB() *float64 {
	size := residentBytes()
	if size == 0 {
		size = heldBytes()
	}
	if size == 0 {
		return nil
	}
	mb := math.Round(float64(size)/1e5) / 10
	return &mb
}

// residentBytes reads Linux's account of the process; 0 elsewhere.
func residentBytes() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(status) {
		if size, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kb, _ := strconv.ParseUint(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(size), []byte("kB")))), 10, 64)
			return kb * 1024
		}
	}
	return 0
}

func heldBytes() uint64 {
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() != runtimemetrics.KindUint64 {
			return 0
		}
	}
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
