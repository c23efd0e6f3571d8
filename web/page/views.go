package page

// views are all that there are, in the order of the menu.
var views = []*view{
	overviewView,
	serversView,
	catalogueView, searchView, callView, resultView,
	liveView, liveEvents,
	changesView,
	accessView,
	connectView,
}
