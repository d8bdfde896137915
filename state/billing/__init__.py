"""What calls cost: reserve before, settle after.

ledger.py       the money of this process: what is open, settlement in groups, retries
holds.py        how money is held for one request, where there is a limit
purse.py        money that is held in advance, so that most requests need not ask the database
reservation.py  what one request holds, has used, and is billed: in micro-EUR, and in the units of its model
upkeep.py       marks what was used, ends what dead processes left, deletes what is old
months.py       budgets that renew by month
postings.py     what moves money on budgets, as SQL
usage.py        what is billed: entries and bills, lines and sums
daily.py        what somebody was billed, by day and model
audit.py        whether usage lines, budgets and reservations add up
"""
