"""Bills calls: reserves before, settles after.

ledger.py       the money of this process: how it is held for a request, settlement in groups, retries
purse.py        money that is held in advance, so that most requests need not ask the database
reservation.py  one request: where its money may be, what it has used and is billed, in money and units
upkeep.py       marks what was used, ends what dead processes left, deletes what is old
months.py       budgets that renew by month
postings.py     what moves money on budgets, as SQL
usage.py        what is billed: entries and bills, lines and sums
daily.py        billed amounts by day and model
audit.py        whether usage lines, budgets and reservations add up
"""
