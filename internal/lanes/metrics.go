package lanes

import "github.com/prometheus/client_golang/prometheus"

// Collect reads the metrics of the queue for Prometheus.
func (r *Runner[T]) Collect(out chan<- prometheus.Metric) {
	// The queue is a constant label, because the queues have separate collectors.
	report := func(kind prometheus.ValueType, name, help string, v float64) {
		desc := prometheus.NewDesc(name, help, nil, prometheus.Labels{"queue": r.Queue})
		out <- prometheus.MustNewConstMetric(desc, kind, v)
	}
	st := r.Stats()
	report(prometheus.GaugeValue, "turnpike_lanes_held", "Lanes that this node works, by queue.", float64(st.Lanes))
	report(prometheus.GaugeValue, "turnpike_lanes_running", "Items that run on this node, by queue.", float64(st.Running))
	report(prometheus.GaugeValue, "turnpike_lanes_slots", "Items that may run on this node at the same time, by queue.", float64(r.Slots))
	report(prometheus.CounterValue, "turnpike_lanes_started_total", "Items that this node started, by queue.", float64(st.Started))
}
