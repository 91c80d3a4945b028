#include "agent/urgent.h"

#include <stddef.h>

static struct urgent_list *list_of(struct urgent *urgent, const struct record *record)
{
	return &urgent->lists[record->urgency - QUEUE_URGENT];
}

/* Has those beside the record, or the ends of the list, name these two. */
static void join(struct urgent *urgent, struct record *record, struct record *as_next,
		 struct record *as_prev)
{
	const struct record_link *link = record_link(record);
	struct urgent_list *list = list_of(urgent, record);

	if (link->prev)
		record_link(link->prev)->next = as_next;
	else
		list->first = as_next;
	if (link->next)
		record_link(link->next)->prev = as_prev;
	else
		list->last = as_prev;
}

void urgent_append(struct urgent *urgent, struct record *record,
		   struct queue_channel *channel)
{
	struct record_link *link = record_link(record);

	if (!link)
		return;
	*link = (struct record_link){list_of(urgent, record)->last, NULL, channel};
	join(urgent, record, record, record);
}

void urgent_remove(struct urgent *urgent, struct record *record)
{
	const struct record_link *link = record_link(record);

	if (link)
		join(urgent, record, link->next, link->prev);
}

void urgent_moved(struct urgent *urgent, struct record *record)
{
	if (record_link(record))
		join(urgent, record, record, record);
}

struct record *urgent_first(const struct urgent *urgent, uint64_t barrier)
{
	for (int i = QUEUE_PERMISSION; i >= QUEUE_URGENT; i--) {
		struct record *first = urgent->lists[i - QUEUE_URGENT].first;

		if (first && first->arrival < barrier)
			return first;
	}
	return NULL;
}
